"""Predictions of studies that other laws made, and of real ones: intervals hold, errors are small."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from raybench.analysis.simulate.fit import fit
from raybench.analysis.simulate.steps import Measurement, Question, Shape
from tests.support.planted.simulated_scaling import LAWS, draw, measured_step

MEASURED = [(Shape.even(n, -(-n // 4)), batch) for n in (1, 2, 4, 8, 16) for batch in (32, 128)]
ASKED = [Question(Shape((4,) * m), batch) for m in (8, 16) for batch in (32, 128)]
COVERED = 0.80  # of intervals of 95%, four of a study hanging together
WIDEST = 0.35  # their mean half-width, relative: wider ones would cover anything


def test_intervals_hold_for_laws_that_are_not_the_model() -> None:
    check_laws(studies=2)


def check_laws(studies: int) -> None:
    """With so many studies of each law; ``COVERED`` and ``WIDEST`` bound what comes out."""
    held, halves, errors, naive = [], [], [], []
    for law in LAWS:
        for seed in range(studies):
            study = draw(law, seed)
            found = fit([study.measure(Question(*each)) for each in MEASURED])
            for answer in found.predict(ASKED):
                truth_s = study.measure(answer.question).step_time_s.value
                assert answer.step_time_s is not None
                assert answer.naive_step_time_s is not None
                held.append(not answer.step_time_s.excludes(truth_s))
                halves.append(answer.step_time_s.relative_half_width)
                errors.append(abs(np.log(answer.step_time_s.value / truth_s)))
                naive.append(abs(np.log(answer.naive_step_time_s / truth_s)))
    assert np.mean(held) >= COVERED
    assert np.mean(halves) <= WIDEST
    assert np.mean(errors) < np.mean(naive)


def test_measured_training_at_twice_the_devices(data_dir: Path) -> None:
    """The other models are in tests/calibration."""
    check_traces(data_dir, "bert")


def check_traces(data_dir: Path, model: str) -> None:
    """Fitted to at most 8 GPUs, 16 are predicted; the larger cuts are in benchmarks/prediction.py."""
    points = read(data_dir / "ddp_traces", model)
    found = fit([each for each in points if each.shape.world_size <= 8])
    held = [each for each in points if each.shape.world_size == 16]
    answers = found.predict([Question(each.shape, each.batch_size) for each in held])
    steps = [answer.step_time_s for answer in answers if answer.step_time_s]
    assert len(steps) == len(held)  # nothing is refused
    errors = [abs(step.value / each.step_time_s.value - 1) for step, each in zip(steps, held, strict=True)]
    holds = [not step.excludes(each.step_time_s.value) for step, each in zip(steps, held, strict=True)]
    assert np.mean(errors) < 0.15
    assert np.mean(holds) >= 0.80
    assert np.mean([step.relative_half_width for step in steps]) < 0.30


def read(directory: Path, model: str) -> list[Measurement]:
    points = []
    with (directory / f"{model}-placements.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            shape = Shape(tuple(map(int, row["placement"])))
            points.append(measured_step(shape, int(row["local_bsz"]), float(row["step_time"])))
    return points
