"""Transfers that nothing hides: is it their number, their size, or the way that they take?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from raybench.analysis.collectives import Link, LinkKey
from raybench.analysis.findings.batch import larger_batch
from raybench.analysis.findings.case import Case, PartOfStep
from raybench.analysis.findings.finding import FindingName, Need, Remedy
from raybench.analysis.reference import bucket_sizes
from raybench.analysis.stats.statistics import Estimate
from raybench.spec.knobs import KnobValue

HALF = 0.5  # of the transfers' time: whichever of latency and bandwidth has more than this binds
DEFAULT_CAP_MB = 25.0  # DDP's own, but for the first bucket
OTHER_CAPS_MB = (1.0, DEFAULT_CAP_MB)  # sizes of buckets that most models have in different numbers of them
HALF_THE_BYTES: Mapping[str, KnobValue] = {"gradient_compression": "bf16"}
MANY_BUCKETS = 2  # with more than these, larger buckets save latency


class Interference(PartOfStep):
    """Transfers slow down what computes alongside: exposed is certainly more than they take alone."""

    name = FindingName.INTERFERENCE

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """What is exposed beyond the transfers alone is worth telling."""
        hidden = case.waterfall.hidden_communication_s if case.waterfall else None
        if hidden is None:
            return None
        beyond = hidden.scaled(-1)
        return cls(case, beyond) if case.is_worth_telling(beyond) else None

    @classmethod
    def needs(cls, case: Case) -> Need | None:
        return case.needs_variants(case.waterfall.hidden_communication_s if case.waterfall else None)

    @property
    def values(self) -> dict[str, float]:
        return {"interference_s": self.part_s.value, "interference_share": self.share.value}


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
        beyond = case.finding(Interference)
        replay = case.waterfall.replay_s if case.waterfall else None
        part_s = exposed if beyond is None or replay is None else replay
        return cls(case, part_s, latency_of(case), worse_way(case))

    @classmethod
    def needs(cls, case: Case) -> Need | None:
        return case.needs_variants(case.parts.exposed_communication)

    @property
    def name(self) -> FindingName:
        if self.worse_way is not None:
            return FindingName.SLOW_PATH
        if self.latency is not None and self.latency.share.low > HALF:
            return FindingName.LATENCY_BOUND
        if self.latency is not None and self.latency.share.high < HALF:
            return FindingName.BANDWIDTH_BOUND
        return FindingName.COMMUNICATION_BOUND

    @property
    def rate(self) -> Estimate | None:
        """The bus bandwidth of its transfers alone, in bytes/s."""
        return self.case.waterfall.bus_bandwidth_bytes_per_s if self.case.waterfall else None

    @property
    def link_share(self) -> Estimate | None:
        """That as a share of what the sweep's largest messages reach."""
        rate, link = self.rate, sweep_link(self.case)
        best = link.bus_bandwidth_bytes_per_s if link else None
        if rate is None or best is None:
            return None
        return Estimate(rate.value / best.value, rate.low / best.high, rate.high / best.low, rate.n)

    @property
    def values(self) -> dict[str, float]:
        waterfall = self.case.waterfall
        values = {
            "exposed_s": self.part_s,
            "exposed_share": self.share,
            "replay_s": waterfall.replay_s if waterfall else None,
            "bus_bandwidth_bytes_per_s": self.rate,
            "link_share": self.link_share,
            "latency_share": self.latency.share if self.latency else None,
        }
        return {name: each.value for name, each in values.items() if each is not None}

    @property
    def remedy(self) -> Remedy:
        """A better way, fewer buckets, or half the bytes where no larger batch is predicted to do."""
        case = self.case
        if self.worse_way is not None:
            return Remedy(self.worse_way.change)
        if self.name is FindingName.LATENCY_BOUND and len(case.steps.bucket_bytes) > MANY_BUCKETS:
            return Remedy({"bucket_cap_mb": _in_one_bucket(case)})
        if self.name is FindingName.BANDWIDTH_BOUND and not cores_decide(case):
            is_whole = case.config.setting.gradient_compression == "none"
            return Remedy(dict(HALF_THE_BYTES)) if is_whole and not larger_batch(case) else Remedy()
        return Remedy()

    @property
    def other_sizes(self) -> list[float]:
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


def cores_decide(case: Case) -> bool:
    """Whether the sweep says so of messages as large as the buckets."""
    link, buckets = sweep_link(case), case.steps.bucket_bytes
    return link is not None and bool(sum(buckets)) and link.cores_decide(sum(buckets) / len(buckets))


# Variables that switch a fast path off, and what they are then.
SWITCHED_OFF = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
INTERFACES = {"cuda": "NCCL_SOCKET_IFNAME", "cpu": "GLOO_SOCKET_IFNAME"}
SLOW_INTERFACES = ("lo", "docker", "veth", "br-", "virbr", "tun", "tap", "wl")
DIRECT = "/GDRDMA"  # GPUDirect: an adapter reads a GPU's memory
NEAR_LINKS, FAR_LINKS = ("NV", "PIX", "PXB"), ("PHB", "NODE", "SYS")


@dataclass(frozen=True)
class WorseWay:
    """The way that is taken: by a variable that switches a better one off or names it, or by far GPUs."""

    variable: str = ""
    value: str = ""
    change: Mapping[str, KnobValue] | None = None
    far: tuple[int, int] = (0, 0)  # GPUs that are used
    far_link: str = ""
    near: tuple[int, int] = (0, 0)  # GPUs that are nearer to each other
    near_link: str = ""
    network: str = ""  # NCCL's, which is not the fastest
    devices: tuple[str, ...] = ()  # that are faster than it


def worse_way(case: Case) -> WorseWay | None:
    """Why the transfers go a worse way than they could; None where nothing says so."""
    environment = case.around.environment
    variables = dict(environment.variables if environment else {}) | case.config.environment
    several = (case.record.nodes or 1) > 1
    for name, off in SWITCHED_OFF.items() if case.is_cuda else ():
        if variables.get(name) == off and (several or name != "NCCL_IB_DISABLE"):
            return WorseWay(name, off, {name: "0"})
    name = INTERFACES[case.config.device]
    taken = variables.get(name, "").lstrip("=")
    if several and taken.startswith(SLOW_INTERFACES):
        return WorseWay(name, taken)
    if several:
        return _slow_network(case)
    return _far_gpus(case) if case.is_cuda else None


def _slow_network(case: Case) -> WorseWay | None:
    """Sockets where there are adapters of InfiniBand or the like, or such an adapter without GPUDirect."""
    environment, told = case.around.environment, case.steps.nccl_networks
    networks = sorted({network for each in told if each for network in each.split(", ")})
    devices = environment.every_node[0].rdma_devices if environment else ()
    if "Socket" in networks:
        return WorseWay(network="Socket", devices=devices) if devices else None
    return next((WorseWay(network=each) for each in networks if not each.endswith(DIRECT)), None)


def _far_gpus(case: Case) -> WorseWay | None:
    """GPUs of one node that talk through the host while others have a nearer way."""
    environment = case.around.environment
    links = environment.gpu_links if environment else ()
    ranks = [rank for rank in case.record.ranks if rank < len(links)]
    pairs = {(b, a): links[a][b] for a in range(len(links)) for b in range(a)}
    used = {pair: kind for pair, kind in pairs.items() if pair[0] in ranks and pair[1] in ranks}
    far = [pair for pair, kind in used.items() if kind.startswith(FAR_LINKS)]
    near = [pair for pair, kind in pairs.items() if kind.startswith(NEAR_LINKS)]
    if not far or not near or len(ranks) > 2:
        return None
    return WorseWay(far=far[0], far_link=pairs[far[0]], near=near[0], near_link=pairs[near[0]])


@dataclass(frozen=True)
class Latency:
    """The latency of a trial's transfers, all of its buckets together and of each."""

    share: Estimate  # of the transfers' time
    each_s: Estimate
    other_buckets: int | None = None  # of the trial that it is known from; None: of a sweep
    other_setting: Mapping[str, KnobValue] = field(default_factory=dict)  # in which that differs


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
        return Latency(_share(link.latency_s, number, replay), link.latency_s)
    return _from_bucket_sizes(case, number)


def _from_bucket_sizes(case: Case, number: int) -> Latency | None:
    """latency = (replay_1 - replay_2) / (buckets_1 - buckets_2), of trials that send the same bytes."""
    own = next((each for each in case.replays if each.num_buckets == number), None)
    others = [each for each in case.replays if each.num_buckets != number]
    if own is None or not others:
        return None
    furthest = max(others, key=lambda each: abs(each.num_buckets - number))
    mine, theirs, more = own.time_s, furthest.time_s, number - furthest.num_buckets
    half = (mine.half_width**2 + theirs.half_width**2) ** 0.5 / abs(more)
    value = (mine.value - theirs.value) / more
    if value + half <= 0:
        return None
    # no transfer has less latency than none
    each_s = Estimate(max(value, 0.0), max(value - half, 0.0), value + half, min(mine.n, theirs.n))
    changes = furthest.record.config.differences(own.record.config)
    named = {name: value for name, value in changes.items() if name in ("precision", "bucket_cap_mb")}
    return Latency(_share(each_s, number, mine), each_s, furthest.num_buckets, named)


def _share(each_s: Estimate, number: int, whole: Estimate) -> Estimate:
    ends = [min(max(number * end / whole.value, 0.0), 1.0) for end in (each_s.value, each_s.low, each_s.high)]
    return Estimate(ends[0], ends[1], ends[2], each_s.n)
