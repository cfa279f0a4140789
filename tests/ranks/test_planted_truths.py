"""Plant a known truth on real gloo ranks, measure it with the real code, find it again."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from raybench.analysis.diagnosis.evenness import straggler
from raybench.analysis.diagnosis.findings import Finding, FindingName
from raybench.analysis.diagnosis.stability import findings
from raybench.analysis.estimates.efficiency import Verdict, gain, scaling
from raybench.analysis.estimates.statistics import Estimate, trimmed_mean
from raybench.analysis.estimates.waterfall import Waterfall, waterfall
from raybench.records.measurements import StepsResult
from raybench.records.record import TrialRecord
from raybench.records.requests import StepsRequest
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec
from raybench.worker.cache import GroupCache
from raybench.worker.communicators import Communicators
from tests.ranks.planted import CLOCK, MAX_RANKS, Plant, align_blocks
from tests.ranks.ranks import run_ranks, until_it_agrees
from tests.ranks.trials import ALL, run_trials
from tests.unit import studies

# One interval in twenty misses, and other processes of the machine disturb: what does not agree is measured
# again in fresh ranks. A measurement that is wrong is wrong every time.
# The machine has a share of its own beside what is planted: Python, the optimizer, the real all-reduces,
# late wake-ups. The workload's own clock sees it (0.1 to 0.5 ms a step on idle cores, more on busy ones) and
# it is added to the truth; what it cannot see there, such as the own share's skew, is granted with this
# much of the step, beside the interval. The case "null" plants nothing.
FLOOR = 0.02
BATCH, GLOBAL_BATCH = 8, 64

PLANTS = {
    "null": Plant(),
    "contention": Plant(contention_s=0.006),
    "wrapper": Plant(wrapper_s=0.005),
    "straggler": Plant(straggler_s=0.008, straggler_rank=1),
    "jitter": Plant(jitter_s=0.008),
    "hidden": Plant(link_s=0.005),  # only the last bucket's transfer is exposed
    "congested": Plant(link_s=0.010),  # the link falls behind the backward pass
    "all": Plant(
        contention_s=0.006, wrapper_s=0.004, straggler_s=0.008, straggler_rank=1, jitter_s=0.006, link_s=0.008
    ),
}
STRONG = Plant(forward_s=0.008, per_sample_s=0.030 / GLOBAL_BATCH, backward_s=(0.004, 0.004))
# throughput over that of the versus, whose batch is one less
GAINS = {"gain": 1.05, "no_gain": 1.0}


def _gain_plant(ratio: float) -> Plant:
    step = 0.040
    rest = 0.018  # backward
    other = step * (BATCH - 1) / BATCH * ratio
    return Plant(
        forward_by_batch_s=((BATCH, step - rest), (BATCH - 1, other - rest)), backward_s=(rest / 2, rest / 2)
    )


def _request(plant: Plant, stamps: str, **fields: Any) -> StepsRequest:
    given: dict[str, Any] = {
        "role": "search",
        "workload": plant.spec(stamps),
        "optimizer": OptimizerSpec(),
        "setting": Setting(batch_size=BATCH, bucket_cap_mb=0.0005),  # one bucket for each parameter
        "world_size": 2,
        "variants": ALL,
        # as many rounds that plain is on every rank as often as on the others
        "measure": MeasureSpec(half_width=0.001, steps=3, min_rounds=8, warmup_steps=2),
    }
    return studies.request(**(given | fields))


def _requests(stamps: str) -> dict[str, StepsRequest]:
    requests = {name: _request(plant, stamps) for name, plant in PLANTS.items()}
    requests["all"] = requests["all"].model_copy(
        update={
            "role": "scaling",  # with phases
            "measure": MeasureSpec(half_width=0.001, steps=3, min_rounds=12, warmup_steps=2),
        }
    )
    setting = Setting(batch_size=GLOBAL_BATCH, bucket_cap_mb=0.0005)
    requests["strong"] = _request(
        STRONG, stamps, scaling="strong", setting=setting, variants=("base", *ALL[:-1])
    )
    for name, ratio in GAINS.items():
        setting = requests["null"].config.setting
        requests[name] = _request(
            _gain_plant(ratio),
            stamps,
            role="confirmation",
            versus=setting.model_copy(update={"batch_size": BATCH - 1}),
            variants=("synced", "versus"),
            measure=MeasureSpec(half_width=0.001, steps=4, min_rounds=14, warmup_steps=2),
        )
    return requests


def _measure(requests: dict[str, StepsRequest]) -> dict[str, tuple[Any, dict[str, Any]]]:
    """On each rank: every trial's result, and the machine's own share of its steps."""
    torch.set_num_threads(1)
    align_blocks()
    communicators, found = Communicators("gloo"), {}
    for name, request in requests.items():
        (result,) = run_trials([request], communicators, GroupCache())
        found[name] = (result, CLOCK.own_s)
    communicators.drop_team()
    return found


def _records(world_size: int, requests: dict[str, StepsRequest]) -> dict[str, TrialRecord]:
    by_rank = run_ranks(_measure, world_size, requests)
    records = {}
    for name, request in requests.items():
        results = [found[name][0] for found in by_rank]
        assert {result.state for result in results} == {"complete"}, results
        OWN[name, world_size] = _own_shares(
            [found[name][1] for found in by_rank], linked=name in PLANTS and PLANTS[name].link_s > 0
        )
        records[name] = TrialRecord(
            study="planted",
            trial_id=request.trial_id,
            request=request,
            state="complete",
            ranks=tuple(range(world_size)),
            started_at="",
            wall_time_s=0.0,
            result=results[0].result,
        )
    return records


Check = Callable[[TrialRecord], None]
OWN: dict[tuple[str, int], dict[str, float]] = {}


def _own_shares(by_rank: list[dict[str, dict[tuple[int, int], float]]], *, linked: bool) -> dict[str, float]:
    """Mean own share of a step in s for each variant, over ranks and blocks, the blocks trimmed."""
    shares = {}
    # The planted link's end is the same for all, and whoever begins the next step last is waited for. Without
    # the link the share counts from each rank's own backward pass: who waits for a slower one is not late.
    of_ranks = {"synced": max if linked else min}
    for kind in ("plain", "crowd", "local", "synced"):
        blocks: dict[int, list[float]] = {}
        for place in {place for own in by_rank for place in own.get(kind, {})}:
            found = [own[kind][place] for own in by_rank if place in own.get(kind, {})]
            blocks.setdefault(place[0], []).append(of_ranks.get(kind, fmean)(found))
        means = [fmean(values) for values in blocks.values()]
        shares[kind] = trimmed_mean(means).value if len(means) > 1 else 0.0
    return shares


@pytest.fixture(scope="module")
def stamps(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("planted") / "stamps"
    np.zeros(MAX_RANKS).tofile(file)
    return str(file)


@pytest.fixture(scope="module")
def two(stamps: str) -> dict[str, TrialRecord]:
    return _records(2, _requests(stamps))


@pytest.fixture
def check_case(two: dict[str, TrialRecord], stamps: str) -> Callable[[str, Check], None]:
    """Checks the record of a case, and measures the case again where it does not agree."""

    def check_case(name: str, check: Check) -> None:
        def measure_again() -> None:
            two[name] = _records(2, {name: _requests(stamps)[name]})[name]

        until_it_agrees(lambda: check(two[name]), measure_again)

    return check_case


def _waterfall(record: TrialRecord) -> Waterfall:
    found = waterfall(record)
    assert found is not None
    return found


def _measurement(record: TrialRecord) -> StepsResult:
    assert record.steps is not None
    return record.steps


def _agrees(name: str, found: Estimate | None, planted: float, floor: float) -> None:
    assert found is not None, f"{name} was not found at all"
    text = f"{name}: planted {planted:.5f}, found {found.value:.5f} [{found.low:.5f}, {found.high:.5f}]"
    print(f"{text}, floor {floor:.5f}")
    assert found.low - floor <= planted <= found.high + floor, text


def _truth(name: str, plant: Plant, world_size: int) -> dict[str, float]:
    """What was planted, and the machine's own share of each part as the workload's clock saw it."""
    own, parts = OWN[name, world_size], plant.parts(world_size, BATCH)
    print("own share", {kind: f"{1e3 * value:.2f} ms" for kind, value in own.items()})
    parts["ideal"] += own["plain"]
    parts["contention"] += own["crowd"] - own["plain"]
    parts["wrapper"] += own["local"] - own["crowd"]
    parts["exposed_communication"] += own["synced"] - own["local"]
    return parts


def _check(name: str, record: TrialRecord, plant: Plant) -> None:
    world_size = record.config.world_size
    found, truth = _waterfall(record), _truth(name, plant, world_size)
    step_s = sum(truth.values())
    floor = FLOOR * step_s
    present = found.parts.present()
    assert set(present) == set(truth)
    assert sum(part.value for part in present.values()) == pytest.approx(found.step_time_s.value)
    assert len(_measurement(record).bucket_bytes) == len(plant.backward_s)
    _agrees("step time", found.step_time_s, step_s, floor)
    for part, planted in truth.items():
        _agrees(part, present[part], planted, floor)
        seen = present[part].excludes(0.0)
        assert seen or plant.parts(world_size, BATCH)[part] < 2 * floor, f"{part} was not seen"
    # the real all-reduces pass inside the planted transfers; where there are none they are the replay
    own = 0.0 if plant.link_s else max(0.0, found.replay_s.value if found.replay_s else 0.0)
    _agrees("replay", found.replay_s, plant.replay() + own, floor)
    hidden = plant.replay() + own - truth["exposed_communication"]
    _agrees("hidden", found.hidden_communication_s, hidden, floor)
    _agrees("efficiency", scaling(record).efficiency, truth["ideal"] / step_s, FLOOR)


CheckCase = Callable[[str, Check], None]


@pytest.mark.parametrize("name", list(PLANTS))
def test_two_ranks_give_back_what_was_planted(name: str, check_case: CheckCase) -> None:
    check_case(name, lambda record: _check(name, record, PLANTS[name]))


def test_with_nothing_planted_nothing_is_lost_but_to_the_machine(check_case: CheckCase) -> None:
    def check(record: TrialRecord) -> None:
        found, own = _waterfall(record), OWN["null", 2]
        floor = FLOOR * found.step_time_s.value
        parts = found.parts.present()
        del parts["ideal"]
        for name, part in parts.items():
            print(f"{name}: {part.value:.5f} of {found.step_time_s.value:.5f}")
            machine = own["synced"] - own["local"] if name == "exposed_communication" else 0.0
            assert abs(part.value - machine) < floor, name

    check_case("null", check)


def test_hidden_communication_in_closed_form() -> None:
    # ready 6, 12, 18 ms after the backward pass began; the link: 6-16, 16-26, 26-36
    assert PLANTS["congested"].exposed() == pytest.approx(0.018)
    assert PLANTS["hidden"].exposed() == pytest.approx(0.005)


@pytest.mark.parametrize("name", ["straggler", "all"])
def test_the_straggler_is_named(name: str, check_case: CheckCase) -> None:
    def check(record: TrialRecord) -> None:
        found = straggler(_measurement(record))
        assert found is not None
        rank, ratio, excess = found
        assert rank == PLANTS[name].straggler_rank
        assert ratio.low > 1
        floor = FLOOR * _waterfall(record).step_time_s.value
        _agrees("straggler", excess, PLANTS[name].straggler_s, floor)

    check_case(name, check)


@pytest.mark.parametrize("name", ["null", "wrapper", "congested"])
def test_nobody_is_called_a_straggler_where_none_is(name: str, check_case: CheckCase) -> None:
    def check(record: TrialRecord) -> None:
        found = straggler(_measurement(record))
        assert found is not None
        assert found[1].value - 1 < FLOOR

    check_case(name, check)


NAMED = {
    "straggler": FindingName.STRAGGLER,
    "congested": FindingName.COMMUNICATION_BOUND,
    "wrapper": FindingName.COSTLY_WRAPPER,
    "jitter": FindingName.JITTER,  # synthetic batches have one shape: it is not they
}


def _planted_findings(record: TrialRecord, name: str) -> list[Finding]:
    """Without what the machine does: other processes, and what they make of the real all-reduces."""
    own, step_s = OWN[name, 2], _waterfall(record).step_time_s.value
    granted = {FindingName.OTHER_PROCESSES}
    if name != "congested" and own["synced"] - own["local"] > FLOOR * step_s:
        granted.add(FindingName.COMMUNICATION_BOUND)
    return [each for each in findings(record) if each.name not in granted]


@pytest.mark.parametrize("name", list(NAMED))
def test_what_was_planted_is_the_first_finding(name: str, check_case: CheckCase) -> None:
    def check(record: TrialRecord) -> None:
        first = _planted_findings(record, name)[0]
        print(first.evidence)
        assert first.name is NAMED[name]
        part = {"straggler": "skew", "jitter": "skew", "congested": "exposed_communication"}.get(name, name)
        truth, floor = PLANTS[name].parts(2, BATCH)[part], FLOOR * _waterfall(record).step_time_s.value
        own = OWN[name, 2]
        machine = own["synced"] - own["local"] if name == "congested" else 0.0
        _agrees("explained", first.explains, truth + machine, 2 * floor)
        if name == "straggler":
            assert first.values["rank"] == PLANTS[name].straggler_rank

    check_case(name, check)


def test_where_nothing_was_planted_nothing_is_claimed(check_case: CheckCase) -> None:
    def check(record: TrialRecord) -> None:
        assert [each.name for each in _planted_findings(record, "null") if each.explains] == []

    check_case("null", check)


def test_phases_are_what_was_planted(check_case: CheckCase) -> None:
    plant = PLANTS["all"]

    def check(record: TrialRecord) -> None:
        blocks = _measurement(record).phases
        for variant in ("plain", "local"):
            seconds = [block.seconds["backward"] for block in blocks if block.variant == variant]
            assert float(np.median(seconds)) == pytest.approx(sum(plant.backward_s), abs=0.0015)
        plain = [block.seconds["forward"] for block in blocks if block.variant == "plain"]
        # the leader alone, which is no straggler; late in some of its steps
        assert min(plain) >= plant.forward(BATCH) - 1e-4
        assert max(plain) < plant.forward(BATCH) + plant.jitter_s + 0.002

    check_case("all", check)


def test_strong_scaling_finds_the_price_of_the_smaller_batch(check_case: CheckCase) -> None:
    # a + b * batch: the part of a that more devices do not share
    small, whole = STRONG.alone(GLOBAL_BATCH // 2), STRONG.alone(GLOBAL_BATCH)

    def check(record: TrialRecord) -> None:
        parts, own, floor = _waterfall(record).parts, OWN["strong", 2], FLOOR * small
        _agrees("ideal", parts.ideal, (whole + own["plain"]) / 2, floor)
        _agrees("small batch", parts.small_batch, small - whole / 2 + own["plain"] / 2, floor)
        assert parts.small_batch is not None
        assert parts.small_batch.low > 0
        _agrees("contention", parts.contention, own["crowd"] - own["plain"], floor)
        _agrees("wrapper", parts.wrapper, own["local"] - own["crowd"], floor)
        _agrees("skew", parts.skew, 0.0, floor)
        _agrees("exposed", parts.exposed_communication, own["synced"] - own["local"], floor)
        efficiency = (whole + own["plain"]) / 2 / (small + own["synced"])
        _agrees("efficiency", scaling(record).efficiency, efficiency, FLOOR)

    check_case("strong", check)


def test_a_change_of_five_percent_is_seen(check_case: CheckCase) -> None:
    def check(record: TrialRecord) -> None:
        found = gain(record, minimum_gain=0.02)
        _agrees("gain", found.gain, 0.05, 0.005)
        assert found.verdict is Verdict.BETTER

    check_case("gain", check)


def test_no_change_is_not_claimed(check_case: CheckCase) -> None:
    def check(record: TrialRecord) -> None:
        found = gain(record, minimum_gain=0.02)
        _agrees("gain", found.gain, 0.0, 0.005)
        assert found.gain.half_width < 0.04  # a change of 5% would have been seen
        assert found.verdict is Verdict.NONE

    check_case("no_gain", check)


def test_three_ranks_on_fewer_cores_give_back_what_was_planted(stamps: str) -> None:
    measure = MeasureSpec(half_width=0.001, steps=3, min_rounds=9, warmup_steps=2)
    request = _request(PLANTS["all"], stamps, world_size=3, oversubscribed=True, measure=measure)
    records = _records(3, {"all": request})

    def check() -> None:
        _check("all", records["all"], PLANTS["all"])
        found = straggler(_measurement(records["all"]))
        assert found is not None
        assert found[0] == PLANTS["all"].straggler_rank

    until_it_agrees(check, lambda: records.update(_records(3, {"all": request})))
