"""How well does ``predict`` predict, against others' laws, and how often do its intervals hold?

    python -m benchmarks.prediction [--traces DIR] [--studies 40]

Traces: every ``MODEL-placements.csv`` and ``MODEL-scalability.csv`` of DIR (``ddp_traces`` of RAYBENCH_DATA,
else of ../shared/data): steps of DDP on 1 to 64 GPUs, from the artifact of Pollux (OSDI 2021). Fitted to all
points of at most 16 GPUs, every measured shape at 32 and 64 is predicted, and of at most 8 those at 16.
raybench's form and each law have options (``FORMS``, ``SUBSETS``): those with the least error in these three
tasks on the other models are used for a model, so that none is chosen in sight of what it is judged by. Then
studies that six laws generate, none of them the
model (``tests.support.planted.simulated_scaling``): a minute.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import mean, median

import numpy as np

from benchmarks.scaling_laws import LAWS
from raybench.analysis.simulate.fit import Fitted, Form, fit, without_pairs
from raybench.analysis.simulate.steps import Measurement, Question, Shape
from tests.support.planted import simulated_scaling

TASKS = ((8, 16), (16, 32), (16, 64))  # the largest world size fitted, and the one predicted
FORMS = {
    "default": Form(),
    "without overlap": Form(overlaps=False),
    "two nodes count": Form(pairs=True),
    "hops of nodes": Form(("crossed", "nodes", "local")),
    "hops of nodes, without overlap": Form(("crossed", "nodes", "local"), overlaps=False),
    "without crossing": Form(("nodes", "local")),
    "without crossing or overlap": Form(("nodes", "local"), overlaps=False),
    "devices only": Form(("devices",)),
}
Points = Sequence[Measurement]
SUBSETS: dict[str, Callable[[Points], Points]] = {
    "all points": lambda points: points,
    "without two nodes": without_pairs,
    "three nodes or more": lambda points: [each for each in points if each.shape.nodes > 2],
}
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


Rows = dict[tuple[str, int], list[Row]]  # by model and predicted world size


def score_traces(directory: Path) -> None:
    models = sorted(path.name.removesuffix("-placements.csv") for path in directory.glob("*-placements.csv"))
    methods: dict[str, dict[str, Rows]] = {"raybench": {}, **{law: {} for law in LAWS}}  # with their options
    for model, (cut, size) in product(models, TASKS):
        points = read_traces(directory, model)
        known = [each for each in points if each.shape.world_size <= cut]
        asked = [each for each in points if each.shape.world_size == size]
        questions = [Question(each.shape, each.batch_size) for each in asked]
        for name, form in FORMS.items():
            methods["raybench"].setdefault(name, {})[model, size] = of_ours(fit(known, form=form), asked)[0]
        for law, (subset, kept) in product(LAWS, SUBSETS.items()):
            rows = [error_of(*pair) for pair in zip(LAWS[law](kept(known))(questions), asked, strict=True)]
            methods[law].setdefault(subset, {})[model, size] = rows
    chosen = {
        method: {model: best_option(options, models, model) for model in models}
        for method, options in methods.items()
    }
    for cut, size in TASKS:
        print(f"\n{size} GPUs from at most {cut}, options chosen on the other models")
        print(f"{'':>32} {' '.join(f'{model:>8}' for model in models)} {'mean':>7} {'median':>7} holds  half")
        for method, options in methods.items():
            rows_of = [options[chosen[method][model]][model, size] for model in models]
            print(traces_line(method, rows_of), ", ".join(chosen[method].values()), sep="  ")
        print("with the same form for all")
        for name, by_place in methods["raybench"].items():
            print(traces_line(name, [by_place[model, size] for model in models]))


def best_option(options: dict[str, Rows], models: Sequence[str], left_out: str) -> str:
    others = [(model, size) for model in models if model != left_out for _, size in TASKS]
    return min(options, key=lambda name: mean(mean_error(options[name][each]) for each in others))


def mean_error(rows: Sequence[Row]) -> float:
    """Of the questions that have an answer; an option without any is never the best."""
    answered = [row[0] for row in rows if not np.isnan(row[0])]
    return mean(answered) if answered else float("inf")


def traces_line(name: str, by_model: Sequence[Sequence[Row]]) -> str:
    """The mean is over models, the median over all points."""
    errors, every = [mean_error(rows) for rows in by_model], [row for rows in by_model for row in rows]
    shown = f"{name:>32} {' '.join(f'{each:>8.1%}' for each in errors)} {mean(errors):>7.1%}"
    shown += f" {np.nanmedian([row[0] for row in every]):>7.1%}"
    if np.isnan([row[1] for row in every]).any():
        return shown
    return f"{shown} {sum(row[1] for row in every):.0f} of {len(every)} {mean(row[2] for row in every):.0%}"


def read_traces(directory: Path, model: str) -> list[Measurement]:
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
                batch = int(row["local_bsz"])
                points.append(simulated_scaling.measured_step(shape, batch, step_s, compute_s=compute_s))
    return points


def of_ours(found: Fitted, measured: Sequence[Measurement]) -> tuple[list[Row], int]:
    answers = found.predict([Question(each.shape, each.batch_size) for each in measured])
    rows = [
        (
            abs(answer.step_time_s.value / each.step_time_s.value - 1),
            float(not answer.step_time_s.excludes(each.step_time_s.value)),
            answer.step_time_s.relative_half_width,
        )
        for answer, each in zip(answers, measured, strict=True)
        if answer.step_time_s is not None
    ]
    return rows, len(measured) - len(rows)


def error_of(answer: float | None, measured: Measurement) -> Row:
    error = float("nan") if answer is None else abs(answer / measured.step_time_s.value - 1)
    return error, float("nan"), float("nan")


def show(name: str, rows: Sequence[Row]) -> None:
    errors, holds, half = zip(*rows, strict=True)
    print(
        f"{name:>16} error {mean(errors):.1%} (median {median(errors):.1%}), holds {mean(holds):.0%}, "
        f"half-width {mean(half):.0%}, {len(rows)} predictions"
    )


def score_generated(studies: int) -> None:
    print(f"\n{studies} generated studies of each law and design")
    everything: list[Row] = []
    for name, (measured, asked) in DESIGNS.items():
        print(f"\n{name}")
        together: dict[str, list[Row]] = {"five laws": [], "Gunther's": []}
        for law in simulated_scaling.LAWS:
            for seed in range(studies):
                study = simulated_scaling.draw(law, seed)
                found = fit([study.measure(Question(*each)) for each in measured])
                rows, _ = of_ours(found, [study.measure(Question(*each)) for each in asked])
                together["Gunther's" if law == "usl" else "five laws"] += rows
        for laws, rows in together.items():
            show(laws, rows)
            everything += rows
    print()
    show("all", everything)


if __name__ == "__main__":
    main()
