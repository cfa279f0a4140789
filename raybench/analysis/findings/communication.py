"""Transfers that nothing hides: is it their number, their size, or the way that they take?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from raybench.analysis.collectives import Link, LinkKey
from raybench.analysis.findings.batch import larger_batch
from raybench.analysis.findings.case import Case, PartOfStep, Replay
from raybench.analysis.findings.finding import Evidence, FindingName, NextStep, bandwidth, ms, pct, size
from raybench.analysis.labels import changes_words
from raybench.analysis.reference import bucket_sizes
from raybench.analysis.stats.statistics import Estimate
from raybench.spec.counted import counted
from raybench.spec.knobs import KnobValue

HALF = 0.5  # of the transfers' time: whichever of latency and bandwidth has more than this binds
DEFAULT_CAP_MB = 25.0  # DDP's own, but for the first bucket
OTHER_CAPS_MB = (1.0, DEFAULT_CAP_MB)  # sizes of buckets that most models have in different numbers of them
HALF_THE_BYTES: Mapping[str, KnobValue] = {"gradient_compression": "bf16"}
MANY_BUCKETS = 2  # with more than these, larger buckets save latency


@dataclass(frozen=True)
class ExposedTransfers(PartOfStep):
    """Exposed communication of 5% of the step at least, certainly above 0.

    It is named by its cause: a worse way than there is, else what has certainly more than half of the
    transfers' time.
    """

    latency: Latency | None  # None: it cannot be separated from bandwidth
    worse_way: WorseWay | None

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Time that no compute hides."""
        exposed = case.parts.exposed_communication
        if exposed is None or not case.is_worth_telling(exposed):
            return None
        return cls(case, exposed, latency_of(case), worse_way(case))

    @property
    def name(self) -> FindingName:
        if self.worse_way is not None:
            return FindingName.SLOW_PATH
        if self.latency is not None and self.latency.share.low > HALF:
            return FindingName.LATENCY_BOUND
        if self.latency is not None and self.latency.share.high < HALF:
            return FindingName.BANDWIDTH_BOUND
        return FindingName.COMMUNICATION_BOUND

    def evidence(self) -> Evidence:
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

    def next_step(self) -> NextStep:
        if self.worse_way is not None:
            return NextStep(self.worse_way.next_step, self.worse_way.change)
        if self.name is FindingName.LATENCY_BOUND:
            return self._fewer_transfers()
        if self.name is FindingName.BANDWIDTH_BOUND:
            return self._fewer_bytes()
        return self._what_separates_them()

    def _fewer_transfers(self) -> NextStep:
        buckets = len(self.case.steps.bucket_bytes)
        if buckets <= MANY_BUCKETS:
            return NextStep("more samples between two transfers: a larger batch or accumulation")
        cap_mb = _in_one_bucket(self.case)
        words = (
            f"fewer, larger buckets: bucket_cap_mb {cap_mb:g} sends all in one or two instead of {buckets}"
        )
        return NextStep(words, {"bucket_cap_mb": cap_mb})

    def _fewer_bytes(self) -> NextStep:
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

    def _what_separates_them(self) -> NextStep:
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


# Variables that switch a fast path off, and what they are then.
SWITCHED_OFF = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
INTERFACES = {"cuda": "NCCL_SOCKET_IFNAME", "cpu": "GLOO_SOCKET_IFNAME"}
SLOW_INTERFACES = ("lo", "docker", "veth", "br-", "virbr", "tun", "tap", "wl")
NEAR_LINKS, FAR_LINKS = ("NV", "PIX", "PXB"), ("PHB", "NODE", "SYS")


@dataclass(frozen=True)
class WorseWay:
    """The way that is taken, and how to take a better one."""

    fact: str
    next_step: str
    change: Mapping[str, KnobValue] | None = None


def worse_way(case: Case) -> WorseWay | None:
    """Why the transfers go a worse way than they could; None where nothing says so."""
    environment = case.around.environment
    variables = dict(environment.variables if environment else {}) | case.config.environment
    several = (case.record.nodes or 1) > 1
    for name, off in SWITCHED_OFF.items() if case.is_cuda else ():
        if variables.get(name) == off and (several or name != "NCCL_IB_DISABLE"):
            return WorseWay(f"{name}={off} switches a fast path off", f"measure with {name}=0", {name: "0"})
    name = INTERFACES[case.config.device]
    taken = variables.get(name, "").lstrip("=")
    if several and taken.startswith(SLOW_INTERFACES):
        step = f"name the network between the nodes in {name}; `raybench doctor` lists the interfaces"
        return WorseWay(f"{name}={taken} is no network between nodes", step)
    return _far_gpus(case) if case.is_cuda and not several else None


def _far_gpus(case: Case) -> WorseWay | None:
    """GPUs of one node that talk through the host while others have a nearer way."""
    environment = case.around.environment
    links = environment.gpu_links if environment else ()
    ranks = [rank for rank in case.record.ranks if rank < len(links)]
    pairs = {(a, b): links[a][b] for a in range(len(links)) for b in range(a)}
    used = {pair: kind for pair, kind in pairs.items() if pair[0] in ranks and pair[1] in ranks}
    far = [pair for pair, kind in used.items() if kind.startswith(FAR_LINKS)]
    near = [pair for pair, kind in pairs.items() if kind.startswith(NEAR_LINKS)]
    if not far or not near or len(ranks) > 2:
        return None
    a, b = near[0]
    fact = f"GPUs {far[0][1]} and {far[0][0]} are joined by {used[far[0]]}, GPUs {b} and {a} by {pairs[a, b]}"
    return WorseWay(fact, f"measure on those too: --set 'scaling.placement=[[{b}, {a}]]'")


@dataclass(frozen=True)
class Latency:
    """The latency of a trial's transfers, all of its buckets together and of each."""

    share: Estimate  # of the transfers' time
    each_s: Estimate
    known_from: str


def sweep_link(case: Case) -> Link | None:
    """The all-reduce's line at this world size and number of nodes, where a sweep was given."""
    return case.around.links.get(LinkKey("all_reduce", case.config.world_size, case.record.nodes))


def latency_of(case: Case) -> Latency | None:
    """By the sweep's line, else by another trial with another number of buckets; None without either."""
    number, replay = len(case.steps.bucket_bytes), case.waterfall.replay_s if case.waterfall else None
    if not number or replay is None:
        return None
    link = sweep_link(case)
    if link is not None and link.latency_s is not None:
        return Latency(_share(link.latency_s, number, replay), link.latency_s, "by the sweep")
    return _from_bucket_sizes(case, number)


def _from_bucket_sizes(case: Case, number: int) -> Latency | None:
    """latency = (replay_1 - replay_2) / (buckets_1 - buckets_2), of trials that send the same bytes."""
    own = next((each for each in case.replays if each.num_buckets == number), None)
    others = [each for each in case.replays if each.num_buckets != number]
    if own is None or not others:
        return None
    furthest = max(others, key=lambda each: abs(each.num_buckets - number))
    mine, theirs, more = own.beside(furthest), furthest.beside(own), number - furthest.num_buckets
    half = (mine.half_width**2 + theirs.half_width**2) ** 0.5 / abs(more)
    value = (mine.value - theirs.value) / more
    if value + half <= 0:
        return None
    # no transfer has less latency than none
    each_s = Estimate(max(value, 0.0), max(value - half, 0.0), value + half, min(mine.n, theirs.n))
    known_from = f"by the trial with {counted(furthest.num_buckets, 'bucket')}{_how_else(own, furthest)}"
    return Latency(_share(each_s, number, mine), each_s, known_from)


def _how_else(own: Replay, other: Replay) -> str:
    """In which setting the other trial's gradients travel in other buckets, where it is not their size."""
    changes = other.record.config.differences(own.record.config)
    named = {name: value for name, value in changes.items() if name in ("precision", "bucket_cap_mb")}
    return f": {changes_words(named)}" if named else ""


def _share(each_s: Estimate, number: int, whole: Estimate) -> Estimate:
    ends = [min(max(number * end / whole.value, 0.0), 1.0) for end in (each_s.value, each_s.low, each_s.high)]
    return Estimate(ends[0], ends[1], ends[2], each_s.n)
