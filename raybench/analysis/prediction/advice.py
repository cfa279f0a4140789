"""The one further measurement that would help most, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raybench.analysis.prediction.joint import Joint
from raybench.analysis.prediction.measured_groups import micro_batch
from raybench.analysis.prediction.points import MeasuredPoint, Question, Shape
from raybench.analysis.prediction.posterior import Posterior
from raybench.analysis.prediction.refusals import FARTHEST, Reach

WIDE = 0.20  # relative half-width of an interval: a narrower one asks for no further measurement
LEAST_GAIN = 0.10  # of the half-width: what gains less is not proposed
FEASIBLE = 2  # times the largest measured world size: what somebody may be able to get for a measurement


def advice(
    questions: Sequence[Question],
    points: Sequence[MeasuredPoint],
    variants: Sequence[Posterior],
    reach: Reach,
) -> list[str]:
    """For each question the best measurement in words; empty where none helps much, or none is needed."""
    candidates = _candidates(questions, points, reach)
    if not candidates or not questions:
        return [""] * len(questions)
    joint = Joint.of(variants, [*questions, *candidates], reach.largest)
    return [_best(index, questions, candidates, joint, reach) for index in range(len(questions))]


def _best(
    index: int, questions: Sequence[Question], candidates: Sequence[Question], joint: Joint, reach: Reach
) -> str:
    question = questions[index]
    before, all_after = joint.half_widths_after(index)
    after = all_after[len(questions) :]
    if reach.missing_sizes > 1:  # no one measurement will do
        return _several(question.shape, reach)
    helps = np.array([_helps(question, candidate, reach) for candidate in candidates])
    if not helps.any() or (before < WIDE and not reach.refusal(question)):
        return ""
    best = int(np.argmin(np.where(helps, after, np.inf)))
    if after[best] > (1 - LEAST_GAIN) * before and not reach.refusal(question):
        return ""
    of_all, batch = candidates[best].global_batch_size, candidates[best].batch_size
    at = f"batch {batch}" if of_all is None else f"global batch {of_all}"
    if reach.refusal(question):
        return (
            f"measure {in_words(candidates[best].shape)} at {at}: "
            f"{question.shape.world_size} devices can then be predicted, to about ±{after[best]:.0%}"
        )
    return (
        f"measure {in_words(candidates[best].shape)} at {at}: the interval at "
        f"{question.shape.world_size} devices shrinks from ±{before:.0%} to ±{after[best]:.0%}"
    )


def _several(shape: Shape, reach: Reach) -> str:
    """What lets a shape be answered where one world size was measured."""
    words = "measure two more world sizes"
    if shape.world_size > FARTHEST * reach.largest:
        words += f", one of them {-(-shape.world_size // FARTHEST)} or more"
    if shape.nodes > 1 and not reach.crosses_nodes:
        words += ", one of them on several nodes"
    return words


def _helps(question: Question, candidate: Question, reach: Reach) -> bool:
    """It is less than what is asked for, and where that is refused, it would not be any more."""
    if candidate.shape.world_size >= question.shape.world_size:
        return False
    if candidate.shape.nodes > question.shape.nodes:
        return False
    return not reach.with_measured(candidate.shape).refusal(question)


def _candidates(
    questions: Sequence[Question], points: Sequence[MeasuredPoint], reach: Reach
) -> list[Question]:
    """Shapes and batches near those measured, none of them measured yet."""
    asked = {max(each.shape.workers) for each in questions}
    most = max(max(each.shape.workers) for each in points)
    nodes = max(each.shape.nodes for each in points)
    limit = FEASIBLE * reach.largest
    far = {
        -(-each.shape.world_size // FARTHEST)
        for each in questions
        if each.shape.world_size > FARTHEST * reach.largest
    }
    shapes = {
        Shape((each,) * count)
        for count in {1, 2, 3, 4, nodes, nodes + 1, 3 * nodes // 2, FEASIBLE * nodes}
        for each in {1, max(1, most // 2), most, 3 * most // 2, FEASIBLE * most, *asked}
        if each * count <= limit
    }
    shapes |= {Shape.even(size, -(-size // max(asked))) for size in far}
    measured = {(tuple(sorted(each.shape.workers)), each.batch_size) for each in points}
    return [
        candidate
        for shape in sorted(shapes)
        for candidate in _at(shape, questions, points)
        if (tuple(sorted(shape.workers)), candidate.batch_size) not in measured
    ]


def _at(shape: Shape, questions: Sequence[Question], points: Sequence[MeasuredPoint]) -> list[Question]:
    """Batches near those measured, or, where they are of all devices, those that are asked for."""
    size, asked = shape.world_size, {(each.global_batch_size, each.passes) for each in questions}
    divided = sorted((batch, passes) for batch, passes in asked if batch is not None)
    if divided:
        return [
            Question(shape, micro_batch(batch, size, "strong", passes), batch, passes)
            for batch, passes in divided
            if batch >= size * passes
        ]
    batches = sorted({each.batch_size for each in points})
    near = {batches[0], batches[-1], *(each.batch_size for each in questions)}
    return [Question(shape, batch) for batch in sorted(near)]


def in_words(shape: Shape) -> str:
    """``2 nodes x 4``, ``8 devices on one node``."""
    if shape.nodes == 1:
        return f"{shape.world_size} device{'s' * (shape.world_size > 1)} on one node"
    if len(set(shape.workers)) == 1:
        return f"{shape.nodes} nodes x {shape.workers[0]}"
    return f"{shape.nodes} nodes with " + ", ".join(map(str, shape.workers))
