"""Transfers that nothing hides: is it their number, their size, or the way that they take?"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from raybench.analysis.diagnosis.case import Case, PartOfStep
from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep
from raybench.analysis.diagnosis.larger_batch import larger_batch
from raybench.analysis.diagnosis.latency import Latency, latency_of, sweep_link
from raybench.analysis.diagnosis.slow_path import WorseWay, worse_way
from raybench.analysis.diagnosis.words import bandwidth, ms, pct, size
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.same_buckets import bucket_sizes
from raybench.spec.counted import counted
from raybench.spec.knobs import KnobValue

HALF = 0.5  # of the transfers' time: whichever of latency and bandwidth has more than this binds
DEFAULT_CAP_MB = 25.0  # DDP's own, but for the first bucket
OTHER_CAPS_MB = (1.0, DEFAULT_CAP_MB)  # sizes of buckets that most models have in different numbers of them
HALF_THE_BYTES: Mapping[str, KnobValue] = {"gradient_compression": "bf16"}
MANY_BUCKETS = 2  # with more than these, larger buckets save latency


@dataclass(frozen=True)
class ExposedTransfers(PartOfStep):
    """Exposed communication of 5% of the step at least, certainly above 0: of one of four kinds."""

    latency: Latency | None  # None: it cannot be told apart from bandwidth
    worse_way: WorseWay | None

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Time that no compute hides, if it is of this kind."""
        exposed = case.parts.exposed_communication
        if exposed is None or not case.is_worth_telling(exposed):
            return None
        found = cls(case, exposed, latency_of(case), worse_way(case))
        return found if found.is_its_kind else None

    @property
    @abstractmethod
    def is_its_kind(self) -> bool:
        """Whether this is why: a worse way first, then what has certainly more than half of the time."""

    @property
    def is_latency(self) -> bool:
        """Whether latency has certainly more than half of the transfers' time."""
        return self.latency is not None and self.latency.share.low > HALF

    @property
    def is_bandwidth(self) -> bool:
        """Whether latency has certainly less than half of it."""
        return self.latency is not None and self.latency.share.high < HALF

    def evidence(self) -> Evidence:
        """The exposed part, the transfers alone, their bandwidth and latency."""
        case, exposed = self.case, self.part_s
        facts = [f"{ms(exposed)} of the step, {pct(self.share)}, are transfers that no compute hides"]
        values = {"exposed_s": exposed.value, "exposed_share": exposed.value / case.step_s}
        replay_s = case.waterfall.replay_s if case.waterfall else None
        if replay_s is not None:
            facts.append(f"alone they take {ms(replay_s)} in {_buckets(case)}")
            values["replay_s"] = replay_s.value
        facts += _bandwidth_words(case, values)
        if self.latency is not None:
            facts.append(
                f"latency is {pct(self.latency.share)} of that, {ms(self.latency.each_s)} each bucket "
                f"({self.latency.known_from})"
            )
            values["latency_share"] = self.latency.share.value
        if self.worse_way is not None:
            facts.append(self.worse_way.fact)
        return Evidence("; ".join(facts), values)


class SlowPath(ExposedTransfers):
    """A fast way between the devices is switched off, or others have a nearer one."""

    name = FindingName.SLOW_PATH

    @property
    def is_its_kind(self) -> bool:
        """Whatever the latency."""
        return self.worse_way is not None

    def next_step(self) -> NextStep:
        """The better way."""
        assert self.worse_way is not None
        return NextStep(self.worse_way.next_step, self.worse_way.change)


class LatencyBound(ExposedTransfers):
    """Many small transfers, or a model so small that one is."""

    name = FindingName.LATENCY_BOUND

    @property
    def is_its_kind(self) -> bool:
        """More than half of the transfers' time."""
        return self.worse_way is None and self.is_latency

    def next_step(self) -> NextStep:
        """Fewer buckets, where there are many."""
        buckets = len(self.case.steps.bucket_bytes)
        if buckets <= MANY_BUCKETS:
            return NextStep("more samples between two transfers: a larger batch or accumulation")
        cap_mb = _in_one_bucket(self.case)
        words = (
            f"fewer, larger buckets: bucket_cap_mb {cap_mb:g} sends all in one or two instead of {buckets}"
        )
        return NextStep(words, {"bucket_cap_mb": cap_mb})


class BandwidthBound(ExposedTransfers):
    """More bytes than the link carries while the devices compute."""

    name = FindingName.BANDWIDTH_BOUND

    @property
    def is_its_kind(self) -> bool:
        """Latency has less than half of the transfers' time."""
        return self.worse_way is None and self.is_bandwidth

    def next_step(self) -> NextStep:
        """Fewer bytes for each sample."""
        if _cores_decide(self.case):
            return NextStep(
                "the cores decide, not the link: more samples between two transfers (a larger batch or "
                "accumulation), or more cores for each worker; a faster link hardly helps"
            )
        words = "more samples between two transfers: a larger batch or accumulation"
        if self.case.config.setting.gradient_compression != "none":
            return NextStep(f"{words}; else a faster link")
        # what can be tried, where no larger batch can
        change = None if larger_batch(self.case) else dict(HALF_THE_BYTES)
        return NextStep(f"{words}, or half the bytes (gradient_compression bf16); else a faster link", change)


class CommunicationBound(ExposedTransfers):
    """Latency and bandwidth are not told apart, or neither has certainly half."""

    name = FindingName.COMMUNICATION_BOUND

    @property
    def is_its_kind(self) -> bool:
        """What no other kind is."""
        return self.worse_way is None and not self.is_latency and not self.is_bandwidth

    def next_step(self) -> NextStep:
        """What would tell them apart, or what helps against both."""
        if self.latency is not None:
            return NextStep(
                "neither latency nor bandwidth has certainly more than half of it: a larger batch helps "
                "against both"
            )
        sweep = f"`raybench communication --world-sizes {self.case.config.world_size}`"
        missing = self._other_sizes()
        if not missing:
            return NextStep(
                "what was measured does not tell latency and bandwidth apart: a larger batch or accumulation "
                f"helps against both; {sweep} tells which it is"
            )
        named = " and ".join(f"{each:g}" for each in missing)
        return NextStep(
            "latency and bandwidth cannot be told apart from one size of buckets: measure bucket_cap_mb of "
            f"{named} too, or run {sweep}"
        )

    def _other_sizes(self) -> list[float]:
        """Sizes of buckets, in MB, that would tell more and were not measured."""
        measured = {DEFAULT_CAP_MB if each == "default" else each for each in self.case.bucket_caps()}
        gradients_mib = (self.case.steps.gradient_bytes or sum(self.case.steps.bucket_bytes)) / 2**20
        if gradients_mib <= 2 * min(OTHER_CAPS_MB):  # as good as one bucket under every size
            return []
        timeline = self.case.steps.gradient_timeline
        if timeline is None:
            return [each for each in OTHER_CAPS_MB if each not in measured]
        order = timeline.parameter_bytes
        known = {bucket_sizes(order, each) for each in self.case.bucket_caps()}
        return [each for each in OTHER_CAPS_MB if bucket_sizes(order, each) not in known]


def _in_one_bucket(case: Case) -> float:
    total_mib = (case.steps.gradient_bytes or sum(case.steps.bucket_bytes)) / 2**20
    return float(max(25, 2 ** max(int(total_mib), 1).bit_length()))


def _buckets(case: Case) -> str:
    number = counted(len(case.steps.bucket_bytes), "bucket")
    return f"{number} of {size(case.steps.gradient_bytes or 0)} together"


def _bandwidth_words(case: Case, values: dict[str, float]) -> Iterator[str]:
    found, link = case.waterfall, sweep_link(case)
    rate = found.bus_bandwidth_bytes_per_s if found else None
    if rate is None:
        return
    values["bus_bandwidth_bytes_per_s"] = rate.value
    best = link.bus_bandwidth_bytes_per_s if link else None
    if best is None:
        yield f"bus bandwidth {bandwidth(rate)}"
        return
    share = Estimate(rate.value / best.value, rate.low / best.high, rate.high / best.low, rate.n)
    values["link_share"] = share.value
    yield f"bus bandwidth {bandwidth(rate)}, {pct(share)} of what the sweep's largest messages reach"
    if _cores_decide(case):
        yield "by the sweep the cores decide for messages of this size, not the link"


def _cores_decide(case: Case) -> bool:
    """Whether the sweep says so of messages as large as the buckets."""
    link, buckets = sweep_link(case), case.steps.bucket_bytes
    return link is not None and bool(sum(buckets)) and link.cores_decide(sum(buckets) / len(buckets))
