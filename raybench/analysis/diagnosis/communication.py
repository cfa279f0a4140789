"""Transfers that nothing hides: is it their number, their size, or the way that they take?

Latency and bandwidth are told apart by a sweep of the link, or by two trials whose gradients travel in
different numbers of buckets: of replay = buckets x latency + bytes / bandwidth one equation is not enough.
Where there is but one, one finding says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from raybench.analysis.collectives.link import Link, LinkKey
from raybench.analysis.diagnosis.case import Case
from raybench.analysis.diagnosis.findings import Finding, FindingName
from raybench.analysis.diagnosis.words import bandwidth, ms, pct, size
from raybench.analysis.estimates.statistics import Estimate
from raybench.spec.counted import counted
from raybench.spec.knobs import KnobValue

HALF = 0.5  # of the transfers' time: whichever of latency and bandwidth has more than this binds
MANY_BUCKETS = 2  # with more than these, larger buckets save latency
# Variables that switch a fast path off, and what they are without them.
SWITCHED_OFF = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
INTERFACES = {"cuda": "NCCL_SOCKET_IFNAME", "cpu": "GLOO_SOCKET_IFNAME"}
SLOW_INTERFACES = ("lo", "docker", "veth", "br-", "virbr", "tun", "tap", "wl")
NEAR_LINKS, FAR_LINKS = ("NV", "PIX", "PXB"), ("PHB", "NODE", "SYS")


@dataclass(frozen=True)
class _Latency:
    """Which share of the transfers' time is latency, and how that is known."""

    share: Estimate
    each_s: Estimate
    known_from: str


def communicating(case: Case) -> Finding | None:
    """Exposed communication of 5% of the step at least, certainly above 0."""
    exposed, found = case.parts.exposed_communication, case.waterfall
    if exposed is None or found is None or not case.is_worth_telling(exposed):
        return None
    latency = _latency(case)
    facts = [f"{ms(exposed)} of the step, {pct(case.share(exposed))}, are transfers that no compute hides"]
    values = {"exposed_s": exposed.value, "exposed_share": exposed.value / case.step_s}
    if found.replay_s is not None:
        facts.append(f"alone they take {ms(found.replay_s)} in {_buckets(case)}")
        values["replay_s"] = found.replay_s.value
    facts += _bandwidth_words(case, values)
    slow_path = _slow_path(case)
    name, change = FindingName.COMMUNICATION_BOUND, None
    step = (
        "latency and bandwidth cannot be told apart from one size of buckets: measure bucket_cap_mb of 1 "
        "and 25 too, "
        f"or run `raybench communication --world-sizes {case.config.world_size}`"
    )
    if latency is not None:
        facts.append(
            f"latency is {pct(latency.share)} of that, {ms(latency.each_s)} each bucket "
            f"({latency.known_from})"
        )
        values["latency_share"] = latency.share.value
        name, step, change = _told_apart(case, latency)
    if slow_path is not None:
        name, (fact, step, change) = FindingName.SLOW_PATH, slow_path
        facts.append(fact)
    return Finding(
        name, case.severity(exposed), case.record.trial_id, "; ".join(facts), step, values, exposed, change
    )


def _told_apart(case: Case, latency: _Latency) -> tuple[FindingName, str, Mapping[str, KnobValue] | None]:
    if latency.share.low > HALF:
        buckets = len(case.steps.bucket_bytes)
        if buckets <= MANY_BUCKETS:
            return (
                FindingName.LATENCY_BOUND,
                "more samples between two transfers: a larger batch or accumulation",
                None,
            )
        cap_mb = _in_one_bucket(case)
        words = (
            f"fewer, larger buckets: bucket_cap_mb {cap_mb:g} sends all in one or two instead of {buckets}"
        )
        return FindingName.LATENCY_BOUND, words, {"bucket_cap_mb": cap_mb}
    if latency.share.high < HALF:
        more = "" if _is_compressed(case) else ", or half the bytes (gradient_compression bf16)"
        step = f"more samples between two transfers: a larger batch or accumulation{more}; else a faster link"
        return FindingName.BANDWIDTH_BOUND, step, None
    step = (
        "neither latency nor bandwidth has certainly more than half of it: a larger batch helps against both"
    )
    return FindingName.COMMUNICATION_BOUND, step, None


def _in_one_bucket(case: Case) -> float:
    total_mib = (case.steps.gradient_bytes or sum(case.steps.bucket_bytes)) / 2**20
    return float(max(25, 2 ** max(int(total_mib), 1).bit_length()))


def _is_compressed(case: Case) -> bool:
    return case.config.setting.gradient_compression != "none"


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


def sweep_link(case: Case) -> Link | None:
    """The all-reduce's line at this world size and number of nodes, where a sweep was given."""
    return case.around.links.get(LinkKey("all_reduce", case.config.world_size, case.record.nodes))


def _latency(case: Case) -> _Latency | None:
    """By the sweep's line, else by another trial with another number of buckets."""
    number, replay = len(case.steps.bucket_bytes), case.waterfall.replay_s if case.waterfall else None
    if not number or replay is None:
        return None
    link = sweep_link(case)
    if link is not None and link.latency_s is not None:
        return _Latency(_share(link.latency_s, number, replay), link.latency_s, "by the sweep")
    return _from_bucket_sizes(case, number)


def _from_bucket_sizes(case: Case, number: int) -> _Latency | None:
    """latency = (replay_1 - replay_2) / (buckets_1 - buckets_2), of trials that send the same bytes."""
    own = next((each for each in case.replays if each.num_buckets == number), None)
    others = [each for each in case.replays if each.num_buckets != number]
    if own is None or not others:
        return None
    furthest = max(others, key=lambda each: abs(each.num_buckets - number))
    mine, theirs, more = own.beside(furthest), furthest.beside(own), number - furthest.num_buckets
    half = (mine.half_width**2 + theirs.half_width**2) ** 0.5 / abs(more)
    value = (mine.value - theirs.value) / more
    each_s = Estimate(value, value - half, value + half, min(mine.n, theirs.n))
    if each_s.high <= 0:
        return None
    known_from = f"by the trial with {counted(furthest.num_buckets, 'bucket')}"
    return _Latency(_share(each_s, number, mine), each_s, known_from)


def _share(each_s: Estimate, number: int, whole: Estimate) -> Estimate:
    ends = [min(max(number * end / whole.value, 0.0), 1.0) for end in (each_s.value, each_s.low, each_s.high)]
    return Estimate(ends[0], ends[1], ends[2], each_s.n)


def _slow_path(case: Case) -> tuple[str, str, Mapping[str, KnobValue] | None] | None:
    """A fast way between the devices that is switched off or not taken: fact, next step, change."""
    environment = case.around.environment
    variables = dict(environment.variables if environment else {}) | case.config.environment
    several = (case.record.nodes or 1) > 1
    for name, off in SWITCHED_OFF.items() if case.is_cuda else ():
        if variables.get(name) == off and (several or name != "NCCL_IB_DISABLE"):
            return f"{name}={off} switches a fast path off", f"measure with {name}=0", {name: "0"}
    name = INTERFACES[case.config.device]
    taken = variables.get(name, "").lstrip("=")
    if several and taken.startswith(SLOW_INTERFACES):
        step = f"name the network between the nodes in {name}; `raybench doctor` lists the interfaces"
        return f"{name}={taken} is no network between nodes", step, None
    return _far_gpus(case) if case.is_cuda and not several else None


def _far_gpus(case: Case) -> tuple[str, str, None] | None:
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
    return fact, f"measure on those too: --set 'scaling.placement=[[{b}, {a}]]'", None
