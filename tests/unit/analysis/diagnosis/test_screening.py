"""Checks that are not asked would have found nothing, and those that find something are asked."""

from __future__ import annotations

from collections import Counter

from raybench.analysis.diagnosis.case import Case
from raybench.analysis.diagnosis.evenness import UnevenDevices
from raybench.analysis.diagnosis.screening import without_findings
from raybench.analysis.diagnosis.steadiness import Drift, OutlierRounds
from raybench.records.record import TrialRecord
from raybench.spec import MeasureSpec, Setting
from tests.support.planted import FakeRunner, Noise, run_all
from tests.unit.studies import asked, study

SPEC = study(knobs={"batch_size": list(range(8, 128))}, scaling={"world_sizes": [1, 2, 4]})
KINDS = (OutlierRounds, Drift, UnevenDevices)


def slowed(record: TrialRecord, kind: str) -> TrialRecord:
    """The record with ever slower rounds, one that takes three times as long, or a slow device."""
    assert record.steps is not None
    rounds = []
    for place, each in enumerate(record.steps.rounds):
        blocks = []
        for block in each.blocks:
            factor = {
                "drift": 1 + 0.02 * place,
                "outlier": 3.0 if place == 4 else 1.0,
                "uneven": 1.3 if block.variant == "plain" and block.ranks[0] == 1 else 1.0,
                "none": 1.0,
            }[kind]
            times = tuple(factor * each_s for each_s in block.step_time_s)
            blocks.append(
                block.model_copy(update={"step_time_s": times, "slowest_s": factor * block.slowest_s})
            )
        rounds.append(each.model_copy(update={"blocks": tuple(blocks)}))
    return record.model_copy(update={"result": record.steps.model_copy(update={"rounds": tuple(rounds)})})


def test_what_is_not_asked_finds_nothing() -> None:
    requests = [
        asked(SPEC, "search", Setting(batch_size=batch), 2).model_copy(
            update={"measure": MeasureSpec(min_rounds=12, steps=3), "variants": ("plain", "synced")}
        )
        for batch in range(8, 88)
    ]
    records, _ = run_all(FakeRunner(noise=Noise(block=0.01, preemption=0.02), seed=3), requests, SPEC.name)
    kinds = ("none", "drift", "outlier", "uneven")
    records = [slowed(record, kinds[place % 4]) for place, record in enumerate(records)]
    nothing = without_findings(records)
    found, asked_for = Counter[str](), Counter[str]()
    for record in records:
        assert record.steps is not None
        case = Case.of(record, record.steps)
        for kind in KINDS:
            finds = case.finding(kind) is not None
            is_asked = kind not in nothing.get(record.trial_id, ())
            assert is_asked or not finds, (kind.name, record.trial_id)
            found[kind.name] += finds
            asked_for[kind.name] += is_asked
    assert min(found.values()) >= 15  # of 20 that were planted; of few rounds not every one is certain
    assert max(asked_for.values()) < 60  # of 80: the others were spared
