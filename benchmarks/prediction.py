"""How well does ``predict`` predict, beside others' laws, and how often do its intervals hold?

    python benchmarks/prediction.py [--traces DIR] [--studies 40]

Traces: every ``MODEL-placements.csv`` and ``MODEL-scalability.csv`` of DIR (``ddp_traces`` of RAYBENCH_DATA, else of
../shared/data): steps of DDP on 1 to 64 GPUs, from the artifact of Pollux (OSDI 2021). Fitted to all points of at
most 16 GPUs, every measured shape at 32 and 64 is predicted; and at most 8 for 16. Nothing in the model was fitted
to more. Then generated studies of six laws, none of which is the model (``raybench.testing.simulated_scaling``).
One process, two to ten minutes.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from time import perf_counter

import numpy as np
from scaling_laws import LAWS

from raybench.analysis.prediction.points import MeasuredPoint, Question, Shape
from raybench.analysis.prediction.predict import Fitted, fit
from raybench.testing import simulated_scaling

CUTS = {16: (32, 64), 8: (16,)}  # the largest world size fitted, and those predicted
Row = tuple[float, float, float]  # absolute relative error, whether the interval holds, relative half-width


def packed(world_size: int, per_node: int) -> Shape:
    return Shape.even(world_size, -(-world_size // per_node))


Plan = list[tuple[Shape, int]]
DESIGNS: dict[str, tuple[Plan, Plan]] = {
    "nodes of 4: 1 to 16, three batches, for 32, 64, 128": (
        [(packed(n, 4), b) for n in (1, 2, 4, 8, 16) for b in (32, 64, 128)],
        [(packed(n, 4), b) for n in (32, 64, 128) for b in (32, 128)],
    ),
    "nodes of 8: 1 to 16, one batch, for 32, 64": (
        [(packed(n, 8), 32) for n in (1, 2, 4, 8, 16)],
        [(packed(n, 8), 32) for n in (32, 64)],
    ),
    "one node: 1, 2, 4, one batch, for 8, 16": (
        [(Shape((n,)), 32) for n in (1, 2, 4)],
        [(Shape((n,)), 32) for n in (8, 16)],
    ),
    "one device a node: 1 to 8, two batches, for 16, 32, 64": (
        [(packed(n, 1), b) for n in (1, 2, 4, 8) for b in (32, 128)],
        [(packed(n, 1), b) for n in (16, 32, 64) for b in (32, 128)],
    ),
    "strong scaling of 256: 1 to 8 in nodes of 4, for 16, 32": (
        [(packed(n, 4), 256 // n) for n in (1, 2, 4, 8)],
        [(packed(n, 4), 256 // n) for n in (16, 32)],
    ),
    "many placements to 16, four batches, for 32, 48, 64": (
        [
            (Shape((w,) * m), b)
            for m in (1, 2, 3, 4, 6, 8)
            for w in (1, 2, 4)
            if m * w <= 16
            for b in (16, 32, 64, 128)
        ],
        [(Shape((w,) * m), b) for m, w in ((16, 2), (12, 4), (16, 4)) for b in (16, 64)],
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, default=None, help="a directory of traces")
    parser.add_argument(
        "--studies", type=int, default=40, help="generated studies of each law and design; 0: none"
    )
    arguments = parser.parse_args()
    data = Path(os.environ.get("RAYBENCH_DATA", Path(__file__).parents[2] / "shared" / "data"))
    directory = arguments.traces or data / "ddp_traces"
    if directory.is_dir():
        score_traces(directory)
    else:
        print(f"no traces: {directory} is not there (set RAYBENCH_DATA)")
    if arguments.studies:
        score_generated(arguments.studies)


def score_traces(directory: Path) -> None:
    models = sorted(path.name.removesuffix("-placements.csv") for path in directory.glob("*-placements.csv"))
    together: dict[tuple[int, int, str], list[Row]] = {}
    for model in models:
        points = read_traces(directory, model)
        for cut, sizes in CUTS.items():
            known = [each for each in points if each.shape.world_size <= cut]
            started = perf_counter()
            found = fit(known)
            took_s = perf_counter() - started
            names = ", ".join(each.variant for each in found.variants)
            held_out = "none" if found.held_out is None else f"{found.held_out.error:.1%}"
            print(
                f"\n{model}: {len(known)} points to {cut} GPUs in {took_s:.2f} s; {names}; held out: {held_out}"
            )
            print(
                f"{'':>8} {'GPUs':>5} {'mean':>7} {'median':>7} {'holds':>7} {'half':>6} {'points':>7} {'refused':>8}"
            )
            laws = {name: law(known) for name, law in LAWS.items()}
            for size in sizes:
                asked = [each for each in points if each.shape.world_size == size]
                if not asked:
                    continue
                ours, refused = of_ours(found, asked)
                show("raybench", size, ours, refused)
                together.setdefault((cut, size, "raybench"), []).extend(ours)
                for batch in sorted({each.batch_size for each in asked}):
                    rows, _ = of_ours(found, [each for each in asked if each.batch_size == batch])
                    show(f"  at {batch}", size, rows, 0)
                for name, law in laws.items():
                    answers = law([Question(each.shape, each.batch_size) for each in asked])
                    rows = [error_of(answer, each) for answer, each in zip(answers, asked, strict=True)]
                    show(name, size, rows, 0)
                    together.setdefault((cut, size, name), []).extend(rows)
    print("\nall models, every point alike")
    for (cut, size, name), rows in together.items():
        show(f"{name}, to {cut}", size, rows, 0)


def read_traces(directory: Path, model: str) -> list[MeasuredPoint]:
    """The points of both files; a row without a placement is spread evenly."""
    points = []
    for kind in ("placements", "scalability"):
        with (directory / f"{model}-{kind}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                if kind == "placements":
                    shape = Shape(tuple(int(digit) for digit in row["placement"]))
                else:
                    shape = Shape.even(int(row["num_replicas"]), int(row["num_nodes"]))
                step_s = float(row["step_time"])
                compute_s = step_s - float(row["sync_time"])
                points.append(MeasuredPoint(shape, int(row["local_bsz"]), step_s, compute_s))
    return points


def of_ours(found: Fitted, measured: Sequence[MeasuredPoint]) -> tuple[list[Row], int]:
    answers = found.predict([Question(each.shape, each.batch_size) for each in measured])
    rows = [
        (
            abs(answer.step_time_s.value / each.step_time_s - 1),
            float(not answer.step_time_s.excludes(each.step_time_s)),
            answer.step_time_s.relative_half_width,
        )
        for answer, each in zip(answers, measured, strict=True)
        if answer.step_time_s is not None
    ]
    return rows, len(measured) - len(rows)


def error_of(answer: float | None, measured: MeasuredPoint) -> Row:
    error = float("nan") if answer is None else abs(answer / measured.step_time_s - 1)
    return error, float("nan"), float("nan")


def show(name: str, size: int, rows: Sequence[Row], refused: int) -> None:
    errors = [row[0] for row in rows if not np.isnan(row[0])]
    holds, half = [row[1] for row in rows], [row[2] for row in rows]
    if not errors:
        print(f"{name:>16} {size:>5} {'no answer':>15}")
        return
    intervals = f"{'':>7} {'':>6}" if np.isnan(holds).any() else f"{mean(holds):>7.0%} {mean(half):>6.0%}"
    print(
        f"{name:>16} {size:>5} {mean(errors):>7.1%} {median(errors):>7.1%} {intervals} {len(errors):>7} {refused:>8}"
    )


def score_generated(studies: int) -> None:
    print(f"\n{studies} generated studies of each law and design")
    everything: list[Row] = []
    for name, (measured, asked) in DESIGNS.items():
        print(f"\n{name}")
        for law in simulated_scaling.LAWS:
            rows: list[Row] = []
            for seed in range(studies):
                study = simulated_scaling.draw(law, seed)
                found = fit([study.measure(Question(*each)) for each in measured])
                rows += of_ours(found, [study.measure(Question(*each)) for each in asked])[0]
            show(law, max(shape.world_size for shape, _ in asked), rows, 0)
            everything += rows
    print()
    show("all", 0, everything, 0)


if __name__ == "__main__":
    main()
