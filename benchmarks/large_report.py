"""What does a report of very many trials take, in seconds and memory?

Writes a results directory of suggestions of a search on simulated hardware, each with at least ten rounds,
and the curves of the default and of the best; then runs ``report`` on it in a process of its own.

    python -m benchmarks.large_report --trials 5000
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from raybench.machine.environment import capture
from raybench.records.messages import BlockStepTimes
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration, Role, StepsRequest, Variant
from raybench.records.store import ResultsDirectory, write_step_times
from raybench.spec.knobs import Setting
from raybench.spec.study import Study
from tests.support.planted import FakeRunner, Noise
from tests.support.planted.runner import to_record

KNOBS = {
    "batch_size": [32, 64, 128, 256, 512, 1024],
    "bucket_cap_mb": ["default", *range(1, 129)],
    "precision": ["fp32", "bf16"],
    "gradient_accumulation": [1, 2, 4],
    "gradient_compression": ["none", "fp16", "bf16"],
    "gradient_as_bucket_view": [False, True],
    "static_graph": [False, True],
    "broadcast_buffers": [True, False],
}
WORLD_SIZE = 2
MEASURED = 300  # simulated trials, whose rounds the others have too
SHORT: tuple[Variant, ...] = ("plain", "ddp")
FULL: tuple[Variant, ...] = ("plain", "concurrent", "local", "ddp", "replay")


def large_study(trials: int) -> Study:
    """A search of so many suggestions."""
    return Study.model_validate(
        {
            "name": "large",
            "workload": {"name": "mlp"},
            "scaling": {"world_sizes": [1, WORLD_SIZE]},
            "knobs": KNOBS,
            "search": {"method": "optuna", "trials": trials},
        }
    )


def write_results(path: Path, trials: int, step_times: int = 0) -> None:
    """A results directory of ``trials`` suggestions; ``step_times`` of the headline in one parquet file."""
    study, runner, draw = (
        large_study(trials),
        FakeRunner(noise=Noise(preemption=0.05), seed=1),
        random.Random(1),
    )
    settings = (
        Setting(**dict(zip(KNOBS, values, strict=True))) for values in itertools.product(*KNOBS.values())
    )
    default, *others = settings
    suggestions = [default, *draw.sample(others, trials - 1)]
    with ResultsDirectory.create(path, study, capture()) as store:
        for setting, size in itertools.product(suggestions[:2], (1, WORLD_SIZE)):
            request = _request(study, setting, size, "scaling", FULL if size > 1 else ("plain",))
            store.append(to_record(request, runner.run(request, lambda progress: None), study.name))
        headline = store.records()[1]
        if step_times:
            write_step_times(store.samples_path(headline.trial_id), _step_times(headline, step_times))
    measured: list[TrialRecord] = []
    with (path / "trials.jsonl").open("a") as file:
        for number, setting in enumerate(suggestions):
            request = _request(study, setting, WORLD_SIZE, "search", SHORT)
            if number < MEASURED:
                outcome = runner.run(request, lambda progress: None)
                measured.append(to_record(request, outcome, study.name))
                record = measured[-1]
            else:
                record = measured[number % MEASURED].model_copy(
                    update={"request": request, "trial_id": request.trial_id}
                )
            file.write(record.model_dump_json() + "\n")


def _request(
    study: Study, setting: Setting, size: int, role: Role, variants: tuple[Variant, ...]
) -> StepsRequest:
    config = Configuration(
        workload=study.workload,
        optimizer=study.optimizer,
        setting=setting.at(size),
        world_size=size,
    )
    return StepsRequest(config=config, role=role, measure=study.measure, variants=variants)


def _step_times(record: TrialRecord, number: int) -> list[BlockStepTimes]:
    """``number`` step times in ten rounds of two variants on all ranks."""
    rounds, variants = 10, ("plain", "ddp")
    steps = number // (rounds * len(variants) * WORLD_SIZE)
    noise = np.random.default_rng(1)
    return [
        BlockStepTimes(variant, each, tuple(range(WORLD_SIZE)), noise.gamma(50, 2e-4, (WORLD_SIZE, steps)))
        for each in range(rounds)
        for variant in variants
    ]


def main() -> None:
    """Write the directory, report on it, print what that took."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trials", type=int, default=5_000)
    options.add_argument("--step-times", type=int, default=0, help="of the headline's trial")
    options.add_argument("--directory", type=Path, help="kept; used as it is where it is there already")
    asked = options.parse_args()
    with TemporaryDirectory() as folder:
        path = asked.directory or Path(folder) / "large"
        if not path.exists():
            began = time.perf_counter()
            write_results(path, asked.trials, asked.step_times)
            print(f"written in {time.perf_counter() - began:.1f} s: {_size_mb(path / 'trials.jsonl'):.0f} MB")
        began = time.perf_counter()
        command = [sys.executable, "-m", "raybench.study", "report", str(path), "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = {
            "report_s": round(time.perf_counter() - began, 1),
            "cpu_s": round(used.ru_utime + used.ru_stime, 1),  # what it takes on idle cores
            "peak_memory_mib": used.ru_maxrss // 1024,
            "exit_code": done.returncode,
            "files_mb": {
                each.name: round(_size_mb(each), 1) for each in sorted((path / "report").glob("*.*"))
            },
        }
        print(done.stdout + done.stderr)
        print(json.dumps(took))


def _size_mb(path: Path) -> float:
    return path.stat().st_size / 1e6


if __name__ == "__main__":
    main()
