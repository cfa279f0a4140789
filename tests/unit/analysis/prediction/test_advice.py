"""The measurement that helps most, and that it does."""

from __future__ import annotations

import re
from statistics import median

import pytest

from raybench.analysis.prediction.advice import in_words
from raybench.analysis.prediction.points import MeasuredPoint, Question, Shape
from raybench.analysis.prediction.predict import fit
from tests.support.planted.simulated_scaling import draw

ADVICE = re.compile(
    r"measure (\d+) nodes x (\d+) at batch (\d+): "
    r"the interval at (\d+) devices shrinks from ±(\d+)% to ±(\d+)%"
)
SHAPES = [Shape((n,)) for n in (1, 2, 4)] + [Shape((4, 4))]
ASKED = Question(Shape((4,) * 16), 32)


def test_the_advised_measurements_narrow_intervals_as_they_say() -> None:
    """In the middle of many studies: one result may unsettle what is believed of noise and variants."""
    said, came = [], []
    for seed in range(12):
        study = draw("ring", seed)
        points = [study.measure(Question(shape, batch)) for shape in SHAPES for batch in (32, 128)]
        answer = fit(points).predict([ASKED])[0]
        found = ADVICE.fullmatch(answer.advice)
        assert found is not None
        nodes, each, batch, size, before, after = map(int, found.groups())
        assert size == 64
        assert nodes * each <= 16
        assert answer.step_time_s is not None
        assert before == pytest.approx(100 * answer.step_time_s.relative_half_width, abs=1)
        more = study.measure(Question(Shape((each,) * nodes), batch))
        narrower = fit([*points, more]).predict([ASKED])[0].step_time_s
        assert narrower is not None
        said.append(after / before)
        came.append(narrower.relative_half_width / answer.step_time_s.relative_half_width)
    assert max(said) < 0.9
    assert median(came) < 1
    assert median(came) == pytest.approx(median(said), abs=0.15)


def test_a_narrow_interval_asks_for_nothing() -> None:
    shapes = [Shape((w,) * m) for m in (1, 2, 3, 4, 8) for w in (1, 2, 4)]
    points = [MeasuredPoint(shape, batch, 0.1 + 0.001 * batch) for shape in shapes for batch in (8, 32, 128)]
    answer = fit(points).predict([Question(Shape((4,) * 6), 32)])[0]
    assert answer.step_time_s is not None
    assert answer.step_time_s.relative_half_width < 0.2
    assert answer.advice == ""


def _advised(sizes: tuple[int, ...], asked: Shape) -> str:
    points = [MeasuredPoint(Shape((size,)), 32, 0.1 + 0.01 * size) for size in sizes]
    (answer,) = fit(points).predict([Question(asked, 32)])
    assert answer.refused
    return answer.advice


def test_what_is_advised_of_a_refused_prediction_lets_it_be_answered() -> None:
    assert _advised((4,), Shape((16,))) == "measure two more world sizes"
    assert _advised((4,), Shape((64,))) == "measure two more world sizes, one of them 8 or more"
    across = "measure two more world sizes, one of them on several nodes"
    assert _advised((4,), Shape((4, 4))) == across
    # a third world size alone would not say anything of the network between nodes
    assert re.match(r"measure [2-4] nodes x ", _advised((1, 4), Shape((4, 4, 4, 4))))
    assert "one node" in _advised((1, 4), Shape((16,)))


def test_under_strong_scaling_the_batch_is_that_of_all_devices() -> None:
    points = [
        MeasuredPoint(Shape((n,)), 1024 // n, 0.1 + 1.024 / n, global_batch_size=1024) for n in (1, 2, 4)
    ]
    (answer,) = fit(points, scaling="strong").predict([Question(Shape((4,) * 4), 64, 1024)])
    assert re.match(r"measure .* at global batch 1024: ", answer.advice)


def test_shapes_in_words() -> None:
    shapes = [Shape((1,)), Shape((8,)), Shape((4, 4)), Shape((4, 4, 3))]
    words = ["1 device on one node", "8 devices on one node", "2 nodes x 4", "3 nodes with 4, 4, 3"]
    assert [in_words(shape) for shape in shapes] == words
