"""What every ``TrialRunner`` does: the fake, the one over forked ranks, and Ray's worker group.

A subclass of ``ContractOfARunner`` has a fixture ``runner``, of the class, that starts no group by itself;
all of its tests share one group of two, until the last but one asks for others.
"""

from __future__ import annotations

from typing import Any

from raybench.launch.runner import TrialRunner
from raybench.records.messages import Outcome, Progress
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from raybench.spec.workloads import FactorySpec
from tests.support import faulty
from tests.unit import studies

SIZE = 2
MEASURE = MeasureSpec(
    half_width=0.5, steps=1, warmup_steps=1, min_rounds=3, max_seconds=1, timeout_seconds=60
)


def steps(batch: int = faulty.FINE, **fields: Any) -> StepsRequest:
    """A trial of the workload that fails as its batch size says."""
    workload = FactorySpec.model_validate({"factory": "tests.support.faulty:build"})
    given: dict[str, Any] = {
        "workload": workload, "setting": Setting(batch_size=batch), "world_size": SIZE, "measure": MEASURE,
    }  # fmt: skip
    return studies.request(**given | fields)


def run(runner: TrialRunner, request: StepsRequest) -> tuple[Outcome, list[Progress]]:
    """How the trial ended, and what was heard of it."""
    heard = list[Progress]()
    return runner.run(request, heard.append), heard


class ContractOfARunner:
    def test_a_group_has_the_workers_that_were_asked_for(self, runner: TrialRunner) -> None:
        info = runner.start(SIZE, {})
        assert [member.rank for member in info.members] == list(range(SIZE))
        assert all(member.node and member.device_name for member in info.members)

    def test_the_group_that_runs_is_taken_again(self, runner: TrialRunner) -> None:
        assert runner.start(SIZE, {}).number == runner.start(SIZE, {}).number

    def test_a_trial_of_steps_has_what_its_record_needs(self, runner: TrialRunner) -> None:
        number, request = runner.start(SIZE, {}).number, steps()
        outcome, heard = run(runner, request)
        assert outcome.state == "complete", outcome.reason
        assert (outcome.ranks, outcome.nodes, outcome.group) == ((0, 1), 1, number)
        assert outcome.device_name
        assert "set up" in {each.phase for each in heard}
        record = outcome.to_record(request, study="contract", started_at="")
        assert TrialRecord.model_validate_json(record.model_dump_json()) == record
        assert record.steps is not None
        assert len(record.steps.rounds) >= MEASURE.min_rounds
        for round_ in record.steps.rounds:
            assert {block.variant for block in round_.blocks} == set(request.variants)

    def test_every_block_has_its_step_times(self, runner: TrialRunner) -> None:
        runner.start(SIZE, {})
        outcome, _ = run(runner, steps(9))
        assert outcome.result is not None
        rounds = outcome.result.rounds  # type: ignore[union-attr]
        blocks = {
            (block.variant, place): len(block.ranks)
            for place, round_ in enumerate(rounds)
            for block in round_.blocks
        }
        times = {(each.variant, each.round): each.step_time_s.shape[0] for each in outcome.step_times}
        assert times == blocks

    def test_a_smaller_world_is_a_part_of_the_group(self, runner: TrialRunner) -> None:
        number = runner.start(SIZE, {}).number
        outcome, _ = run(runner, steps(world_size=1))
        assert (outcome.state, outcome.ranks, outcome.group) == ("complete", (0,), number)

    def test_a_model_that_raises_costs_its_trial_alone(self, runner: TrialRunner) -> None:
        number = runner.start(SIZE, {}).number
        outcome, _ = run(runner, steps(faulty.RAISES))
        assert outcome.state == "crashed"
        assert "planted in the user's model" in (outcome.reason or "")
        assert outcome.result is None
        assert runner.start(SIZE, {}).number == number
        assert run(runner, steps(10))[0].state == "complete"

    def test_another_size_other_variables_and_new_processes_are_another_group(
        self, runner: TrialRunner
    ) -> None:
        first = runner.start(SIZE, {})
        smaller = runner.start(1, {})
        other = runner.start(1, {"PLANTED": "a"})
        anew = runner.start(1, {"PLANTED": "a"}, anew=True)
        assert first.number < smaller.number < other.number < anew.number
        assert [len(each.members) for each in (first, smaller, other, anew)] == [SIZE, 1, 1, 1]
        assert runner.start(1, {"PLANTED": "a"}).number == anew.number

    def test_at_the_end_nothing_is_left_however_often_it_is_closed(self, runner: TrialRunner) -> None:
        runner.close()
        runner.close()
