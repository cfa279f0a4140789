"""Golden values: what ``raybench`` makes of fifteen stored results directories, to nine digits.

    python -m tests.corpus.golden_values            compare, and print each difference
    python -m tests.corpus.golden_values --accept   store today's values; the commit says why they changed
    python -m tests.corpus.golden_values --make     measure again on fake hardware, then accept

Compared are rows of tables, findings (name, trial, values) and predictions. Sentences are not.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from typer.testing import CliRunner

from raybench import study as command_line
from raybench.machine.host import Resources
from raybench.plan.resolve import make_plan
from raybench.records.store import ResultsDirectory
from raybench.report import document
from raybench.run.session import Session
from raybench.run.study import run_study
from raybench.spec import Study
from tests.corpus.make import STUDIES, unpack
from tests.support.planted import FakeHardware, FakeLearning, FakeLink, FakeRunner, Noise
from tests.unit.runs import Watched
from tests.unit.studies import MACHINE
from tests.unit.sweeps import planned as planned_sweep
from tests.unit.sweeps import session as sweep_session

HERE = Path(__file__).parent / "golden"
CLOSE = 1e-9  # relative
TEXTS = {"label", "reason", "refused", "change"}  # columns with sentences
GRID = {"method": "grid"}
REAL = {"name": "vision", "input": "real"}
SOME_NOISE = Noise(block=0.02, step=0.01)
KNOBS: dict[str, Any] = {
    "batch_size": [64, 512],
    "bucket_cap_mb": ["default", 5],
    "precision": ["fp32", "bf16"],
}

Directories = dict[str, Callable[[Path], None]]


# --- making the directories


def _study(
    devices: int = 2, nodes: int = 1, runner: dict[str, Any] | None = None, **fields: Any
) -> Callable[[Path], None]:
    def measure(path: Path) -> None:
        given = {"name": path.name, "workload": {"name": "mlp"}, "measure": {"half_width": 0.02}} | fields
        plan = make_plan(Study.model_validate(given), Resources("cpu", devices, "a CPU", nodes))
        fake = FakeRunner(**{"noise": SOME_NOISE, "seed": 5} | (runner or {}))
        with ResultsDirectory.create(path, plan.study, MACHINE) as store:
            run_study(Session(plan, fake, store, watcher=Watched()))

    return measure


def _sweep(path: Path) -> None:
    plan = planned_sweep(num_devices=4, world_sizes=(2, 4), message_bytes=(1024, 65536, 1 << 20, 1 << 24))
    with ResultsDirectory.create(path, plan.sweep, MACHINE) as store:
        fake = FakeRunner(noise=SOME_NOISE, seed=6, link=FakeLink(), num_devices=4)
        sweep_session(plan, fake, store).run()


def _fails(request: Any) -> Any:
    setting, size = request.config.setting, request.config.world_size
    if setting.batch_size == 4096:
        return ("oom", "out of memory")
    if setting.bucket_cap_mb == 5 and size > 1:
        return ("timeout", "longer than 300 s")
    return ("crashed", "ValueError: no") if setting.precision == "bf16" and setting.batch_size == 64 else None


MADE: Directories = {
    "search": _study(knobs=KNOBS, search={"method": "optuna", "trials": 6}),
    "grid": _study(4, knobs=KNOBS | {"precision": "fp32"}, cost={"price_per_device_hour": 1.5}),
    "ablation": _study(
        scaling={"mode": "strong"}, search={"method": "ablation"},
        knobs={
            "batch_size": [64, 512], "gradient_accumulation": [1, 4], "gradient_compression": ["none", "fp16"]
        },
    ),
    "starts": _study(
        knobs={"batch_size": [64, 512]}, measure={"half_width": 0.02, "starts": 3},
        runner={"noise": Noise(block=0.02, step=0.01, start=0.04)},
    ),
    "failures": _study(
        knobs=KNOBS | {"batch_size": [64, 512, 4096]}, search=GRID, runner={"fail": _fails}
    ),
    "seeds": _study(
        workload=REAL, training={"epochs": 4, "seeds": 3, "target_accuracy": 0.7},
        cost={"price_per_device_hour": 2.0, "price_per_node_hour": 0.5}, runner={"learning": FakeLearning()},
    ),
    "trained_settings": _study(
        workload=REAL, knobs={"batch_size": [64, 256]}, search=GRID,
        training={"epochs": 3, "seeds": 2, "settings": "measured"}, runner={"learning": FakeLearning()},
    ),
    "strong": _study(4, scaling={"mode": "strong"}, knobs={"batch_size": [256, 2048]}, search=GRID),
    "strategies": _study(
        knobs={"strategy": ["ddp", "fsdp", "single", "dp"], "batch_size": 256}, search=GRID
    ),
    "largest_batch": _study(
        knobs={"batch_size": [64, "max"]}, search=GRID,
        runner={"memory_limit_bytes": 2**31, "costs": FakeHardware().costs},
    ),
    "variables": _study(
        knobs={"batch_size": [64, 512]}, environment={"OMP_PROC_BIND": ["false", "true"]}, search=GRID
    ),
    "placements": _study(4, 2, knobs={"batch_size": 256}, scaling={"placement": ["pack", "spread"]}),
    "objectives": _study(
        knobs=KNOBS, search={"method": "optuna", "trials": 6, "objectives": ["throughput", "peak_memory"]}
    ),
    "noisy": _study(
        knobs=KNOBS, search={"method": "optuna", "trials": 5}, runner={"noise": Noise(block=0.12, step=0.05)}
    ),
    "many_devices": _study(16, 4, knobs={"batch_size": [128, 1024]}, search=GRID),
    "sweep": _sweep,
}  # fmt: skip


def make() -> None:
    """Measure every directory on fake hardware and pack it."""
    for name, measure in MADE.items():
        with tempfile.TemporaryDirectory() as folder:
            measured = Path(folder) / name
            measure(measured)
            to = HERE / name
            shutil.rmtree(to, ignore_errors=True)
            to.mkdir(parents=True)
            for each in ("study.toml", "sweep.toml", "environment.json", "epochs.csv"):
                if (measured / each).exists():
                    shutil.copy(measured / each, to / each)
            lines = (measured / "trials.jsonl").read_bytes()
            (to / "trials.jsonl.gz").write_bytes(gzip.compress(lines, 9, mtime=0))


# --- today's values


def names() -> list[str]:
    """Every directory: those made here, and the recorded studies."""
    return [*MADE, *STUDIES]


def unpacked(name: str, to: Path) -> Path:
    """The results directory ``name`` at ``to``."""
    if name in STUDIES:
        return unpack(name, to)
    shutil.copytree(HERE / name, to)
    packed = to / "trials.jsonl.gz"
    (to / "trials.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return to


def values_of(name: str, folder: Path) -> dict[str, Any]:
    """What today's code makes of a directory."""
    directory = unpacked(name, folder / name)
    found: list[Any] = []
    # no pictures, which take most of a report's time
    with mock.patch.object(document, "draw_all", lambda results, samples_dir: found.append(results) or []):
        _run("report", str(directory))
    report = directory / "report"
    if name == "sweep":
        return {"communication": _rows(report / "communication.csv")}
    results = found[0]
    use = results.recommendation
    values: dict[str, Any] = {
        "summary": _rows(report / "summary.csv"),
        "findings": sorted(
            (
                {
                    "name": str(each.name),
                    "trial": each.trial_id,
                    "severity": str(each.severity),
                    "values": dict(sorted(each.values.items())),
                    "explains": _estimate(each.explains),
                    "change": {**each.change} if each.change is not None else None,
                    "predicted": _estimate(each.predicted),
                }
                for each in results.findings
            ),
            key=repr,
        ),
        "best": results.best.record.trial_id if results.best else None,
        "recommended": use.config.setting.model_dump(mode="json", exclude_none=True) if use else None,
    }
    predictions = directory / "predictions.csv"
    if _run(
        "predict", str(directory), "--world-sizes", "4,8,16,32", "--output", str(predictions), may_refuse=True
    ):
        values["predictions"] = _rows(predictions)
    return values


def _run(*arguments: str, may_refuse: bool = False) -> bool:
    done = CliRunner().invoke(command_line.app, list(arguments))
    if done.exit_code == 0:
        return True
    if not may_refuse:
        raise RuntimeError(f"{arguments}: {done.exit_code}\n{done.output}") from done.exception
    return False


def _rows(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return [
            {key: _number(value) for key, value in row.items() if key not in TEXTS}
            for row in csv.DictReader(file)
        ]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _estimate(value: Any) -> list[float] | None:
    return None if value is None else [value.value, value.low, value.high]


# --- comparing


def differences(expected: Any, found: Any, place: str = "") -> Iterator[str]:
    """A line for each place in which the two are not the same."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in dict.fromkeys([*expected, *found]):
            yield from differences(expected.get(key, "nothing"), found.get(key, "nothing"), f"{place}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif not _same(expected, found):
        yield f"{place}: {expected} expected, found {found}"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-15) or (one != one and other != other)
    return bool(one == other)


def expected(name: str) -> Any:
    """The stored values."""
    return json.loads(gzip.decompress((HERE / f"{name}.json.gz").read_bytes()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("names", nargs="*", default=[])
    typed = parser.parse_args()
    if typed.make:
        make()
    wrong = False
    for name in typed.names or names():
        with tempfile.TemporaryDirectory() as folder:
            found = json.loads(json.dumps(values_of(name, Path(folder))))
        if typed.accept or typed.make:
            text = json.dumps(found, separators=(",", ":"))
            (HERE / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
            continue
        lines = list(differences(expected(name), found))
        wrong |= bool(lines)
        print(f"{name}: {'the same' if not lines else f'{len(lines)} differences'}")
        print(*(f"  {line}" for line in lines[:12]), sep="\n", end="\n" if lines else "")
    raise SystemExit(int(wrong))


if __name__ == "__main__":
    main()
