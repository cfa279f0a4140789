"""How well one measured trial predicts others: buckets, batches, compression, over links of a known rate.

    python -m benchmarks.what_if --output results/what_if                # as root, half an hour
    python -m benchmarks.what_if --output results/what_if --cases waits  # on busy cores: nothing computes
    python -m benchmarks.what_if --output results/what_if --read         # the table again

Each case is a Ray cluster of two nodes of one core each (network namespaces, links shaped by tc), on which
a sweep of all-reduces, a grid of every bucket and batch, and one of compressed gradients are measured by the
commands that everyone uses. Then everything is predicted from one trial, the default at the first batch: with
the sweep, and with the trial's own replay alone. Trials of one case are minutes apart, so what the machine
drifts meanwhile is part of the error.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import typer

from raybench.analysis.collectives import Link, links, messages
from raybench.analysis.resolve import Facts, resolve
from raybench.analysis.scaling import Fit
from raybench.analysis.simulate.timeline import BucketCap
from raybench.analysis.simulate.what_if import Change, Predicted, WhatIf, can_be_asked, what_if
from raybench.records.record import TrialRecord
from raybench.records.store import ResultsDirectory
from tests.support.local_nodes import LocalNodes

CAPS: tuple[BucketCap, ...] = ("default", 1.0, 5.0, 25.0, 100.0)
NEAR = 0.02  # of the best measured: a choice within this is a right one


@dataclass(frozen=True)
class Case:
    """A model on a link."""

    workload: str  # lines of [workload]
    rate: str
    batches: tuple[int, int]


WAITS = """factory = "tests.support.waits:build"
kib = [1024, 16, 2048, 16, 4096, 16, 512, 16, 3072, 16, 2048, 512]
layer_s = 0.002
sample_s = 0.0001"""
MLP = """name = "mlp"
input_dim = 1024
hidden_dim = {hidden}
output_dim = 512
num_layers = 4"""
CNN = """name = "vision"
model = "resnet18"
small_image_stem = false"""

CASES = {
    "waits": Case(WAITS, "300mbit", (16, 32)),
    "mlp": Case(MLP.format(hidden=768), "300mbit", (128, 256)),
    "mlp-fast": Case(MLP.format(hidden=1536), "1gbit", (64, 128)),
    "cnn": Case(CNN, "1gbit", (32, 64)),
    "cnn-fast": Case(CNN, "2gbit", (16, 32)),
    "mlp-wide": Case(MLP.format(hidden=2048), "4gbit", (32, 64)),
}
STUDY = """name = "what_if"
[workload]
{workload}
[knobs]
{knobs}
[scaling]
world_sizes = [2]
placement = ["spread"]
[measure]
max_seconds = {seconds}
"""


def measure(name: str, folder: Path, seconds: float) -> None:
    """The sweep and the study of a case, into ``folder``."""
    case = CASES[name]
    folder.mkdir(parents=True)
    sweep = ["communication", "--collectives", "all_reduce", "--sizes", "64KiB,256KiB,...,64MiB"]
    sweep += [
        "--placement",
        "spread",
        "--max-seconds",
        f"{seconds}s",
        "--output",
        str(folder / "sweep"),
        "--quiet",
    ]
    commands = [sweep]
    knobs = {
        "study": f'batch_size = {list(case.batches)}\nbucket_cap_mb = ["default", 1, 5, 25, 100]',
        "compression": f'batch_size = {case.batches[0]}\nbucket_cap_mb = ["default", 5]\n'
        'gradient_compression = ["none", "fp16"]',
    }
    for each, lines in knobs.items():
        study = folder / f"{each}.toml"
        study.write_text(STUDY.format(workload=case.workload, knobs=lines, seconds=seconds))
        commands.append(["scaling", str(study), "--output", str(folder / each), "--quiet"])
    with LocalNodes(2, cpus=1, rate=case.rate) as nodes:
        for command in commands:
            program = nodes.popen(
                [sys.executable, "-m", "raybench.study", *command], stdin=subprocess.DEVNULL
            )
            if program.wait() != 0:
                raise RuntimeError(f"{name}: raybench {command[0]} ended with {program.returncode}")


def _read(folder: Path, study: str) -> tuple[Facts, Sequence[Link]]:
    """One of a case's studies, and its sweep."""
    with ResultsDirectory.open_readonly(folder / study) as store:
        results = resolve(store.study(), list(store.latest().values()))
    with ResultsDirectory.open_readonly(folder / "sweep") as store:
        return results, links(messages(store.latest().values()))


def _from_one(
    record: TrialRecord, changes: Sequence[Change], results: Facts, lines: Sequence[Link]
) -> WhatIf:
    """What one trial alone says, against the steps of the others."""
    found = what_if(record, changes, Fit([record]), links=lines)
    with_others = what_if(record, changes, results.fit)
    assert found is not None
    assert with_others is not None
    points = zip(found.points, with_others.points, strict=True)
    return replace(found, points=tuple(replace(one, measured_s=each.measured_s) for one, each in points))


def predicted(name: str, folder: Path) -> Iterator[tuple[str, WhatIf]]:
    """Everything from the default at the first batch: with the sweep, and with its own replay alone."""
    results, swept = _read(folder, "study")
    first = CASES[name].batches[0]
    record = next(each for each in results.measured if _is_base(each, first))
    changes = [Change(bucket_cap_mb=cap, batch_size=batch) for batch in CASES[name].batches for cap in CAPS]
    sources: dict[str, Sequence[Link]] = {"sweep": swept, "its replay": ()}
    for source, lines in sources.items():
        yield source, _from_one(record, changes, results, lines)


def compressed(name: str, folder: Path) -> WhatIf:
    """Compressed gradients, and buckets of 5 MiB with and without, from the default without."""
    results, swept = _read(folder, "compression")
    record = next(each for each in results.measured if _is_base(each, CASES[name].batches[0]))
    changes = [
        Change(bucket_cap_mb=cap, gradient_compression=way)
        for cap in ("default", 5.0)
        for way in ("none", "fp16")
    ]
    return _from_one(record, changes, results, swept)


def own_errors(name: str, folder: Path) -> tuple[float, list[float]]:
    """The base's own step as simulated over as measured, less one; then what that of the others differs by.

    Each trial by its own computing and its own replay. A prediction from the base is no better than these
    differences, whatever the base knows, so their 95th percentile is ``MODEL_ERROR``.
    """
    results, swept = _read(folder, "study")
    logs, base = dict[str, float](), ""
    for record in results.measured:
        if record.config.world_size < 2 or not can_be_asked(record):
            continue
        found = what_if(record, [Change()], Fit([record]), links=swept)
        assert found is not None
        logs[record.trial_id] = math.log(found.simulated_s / found.step_time_s.value)
        if _is_base(record, CASES[name].batches[0]):
            base = record.trial_id
    of_base = logs.pop(base)
    return math.expm1(of_base), [each - of_base for each in logs.values()]


def _is_base(record: TrialRecord, batch: int) -> bool:
    setting = record.config.setting
    is_default = setting.bucket_cap_mb == "default" and setting.gradient_compression == "none"
    return is_default and setting.batch_size == batch and can_be_asked(record)


def row(name: str, source: str, found: WhatIf) -> str:
    """A line of the table."""
    record, case = found.record, CASES[name]
    others = [
        each for each in found.points if each.measured_s is not None and each.setting != record.config.setting
    ]
    own = [each for each in others if each.setting.batch_size == case.batches[0]]
    further = [each for each in others if each.setting.batch_size != case.batches[0]]
    covered = sum(_overlap(each) for each in others)
    cells = [
        name,
        case.rate,
        source,
        f"{found.step_time_s.value * 1e3:.0f}, {found.simulated_s / found.step_time_s.value - 1:+.1%}",
        _errors(own),
        _errors(further),
        f"**{median(abs(each.error or 0.0) for each in others):.1%}**",
        f"{covered} of {len(others)}",
        "; ".join(_choice(found, batch) for batch in case.batches),
    ]
    return "| " + " | ".join(cells) + " |"


def _errors(points: list[Predicted]) -> str:
    errors = [each.error or 0.0 for each in points]
    return f"{median(map(abs, errors)):.1%}, {max(errors, key=abs):+.1%}"


def _overlap(point: Predicted) -> bool:
    """Whether the measured step is within the prediction's interval."""
    assert point.measured_s is not None
    return point.step_time_s.low <= point.measured_s.value <= point.step_time_s.high


def _choice(found: WhatIf, batch: int) -> str:
    """The bucket that the prediction takes, and by how much it is slower than the best measured."""
    there = [
        each for each in found.points if each.setting.batch_size == batch and each.measured_s is not None
    ]
    chosen = min(there, key=lambda each: each.step_time_s.value)
    best = min(there, key=lambda each: each.measured_s.value if each.measured_s else 0.0)
    assert chosen.measured_s is not None
    assert best.measured_s is not None
    loss = chosen.measured_s.value / best.measured_s.value - 1
    word = "right" if loss <= NEAR else "wrong"
    return f"batch {batch}: {_cap(chosen)}, {loss:.1%} off {_cap(best)}: {word}"


def _cap(point: Predicted) -> str:
    cap = point.setting.bucket_cap_mb
    return cap if isinstance(cap, str) else f"{cap:g}"


def main(
    output: Annotated[Path, typer.Option(help="Where the cases' results go, a directory each.")],
    cases: Annotated[str, typer.Option(help=f"Of {', '.join(CASES)}, with commas.")] = ",".join(CASES),
    seconds: Annotated[float, typer.Option(help="For the rounds of a trial.")] = 40.0,
    read: Annotated[bool, typer.Option("--read", help="Measure nothing.")] = False,
) -> None:
    """Measure the cases, then say how far off the predictions are."""
    names = cases.split(",")
    if not read:
        for name in names:
            measure(name, output / name, seconds)
    print(
        "| model | link | latency and bandwidth from | one trial measured, ms, simulated | other buckets: "
        "median, largest error | the other batch | all: median error | in the interval | chosen (MiB) |"
    )
    print("|" + " --- |" * 9)
    errors = list[float]()
    for name in names:
        if not (output / name / "study").is_dir():
            continue
        for source, found in predicted(name, output / name):
            print(row(name, source, found))
            if source == "sweep":
                errors += [abs(each.error) for each in found.points if each.error]
    print("\n| model | change | measured, ms | predicted, ms | error | in the interval |\n|" + " --- |" * 6)
    for name in names:
        if not (output / name / "compression").is_dir():
            continue
        for each in compressed(name, output / name).points:
            if each.measured_s is None or each.error is None or not each.error:
                continue
            cells = [
                name,
                each.words,
                f"{each.measured_s.value * 1e3:.0f}",
                f"{each.step_time_s.value * 1e3:.0f}",
            ]
            print("| " + " | ".join([*cells, f"{each.error:+.1%}", "yes" if _overlap(each) else "no"]) + " |")
    print(f"\nmedian error of all {len(errors)} predictions with a sweep: {median(errors):.1%}")
    differences = list[float]()
    for name in names:
        if not (output / name / "study").is_dir():
            continue
        base, others = own_errors(name, output / name)
        differences += map(abs, others)
        print(
            f"{name}: the trial's own step simulated {base:+.1%}; the others' differ from that by "
            f"{median(map(abs, others)):.1%} in the median, {max(map(abs, others)):.1%} at most"
        )
    print(
        f"all {len(differences)} differences: median {median(differences):.1%}, "
        f"95th percentile {np.percentile(differences, 95):.1%}, largest {max(differences):.1%}"
    )


if __name__ == "__main__":
    typer.run(main)
