"""Transfers that compute does not hide, and losses of which no more than that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raybench.analysis.findings.batch import twice_the_batch
from raybench.analysis.findings.case import Case
from raybench.analysis.findings.evenness import slow_alone
from raybench.analysis.findings.finding import Finding, FindingName, Reason
from raybench.analysis.reference import bucket_sizes
from raybench.analysis.simulate.timeline import DEFAULT_CAP_MB
from raybench.analysis.stats.statistics import Estimate, sum_of
from raybench.spec.knobs import KnobValue
from raybench.spec.workloads import ScriptSpec

HALF = 0.5  # of the transfers' time: whichever of latency and bandwidth has more than this binds
OTHER_CAPS_MB = (1.0, DEFAULT_CAP_MB)  # sizes of buckets that most models have in different numbers of them
MANY_BUCKETS = 2  # with more than these, larger buckets save latency


def interference(case: Case) -> Finding | None:
    """Transfers slow down what computes at the same time: more is exposed than they take alone."""
    hidden = case.waterfall.hidden_communication_s if case.waterfall else None
    # what passes send is exposed too, and not among the transfers alone
    if hidden is None or case.steps.pass_collectives:
        return None
    reason = Reason.CHANNELS if case.is_cuda else Reason.BUSY_CORES
    return case.part(FindingName.INTERFERENCE, hidden.scaled(-1), "interference", reason=reason)


def communication_bound(case: Case) -> Finding | None:
    """Exposed communication, with what limits it."""
    exposed, waterfall, steps = case.parts.exposed_communication, case.waterfall, case.steps
    if exposed is None or waterfall is None or not case.is_notable(exposed):
        return None
    replay_s = waterfall.replay_s
    part_s = exposed if replay_s is None or case.finding(interference) is None else replay_s
    rate, latency_share = waterfall.bus_bandwidth_bytes_per_s, latency_share_of(case)
    values = {
        "replay_s": replay_s.value if replay_s else None,
        "bus_bandwidth_bytes_per_s": rate.value if rate else None,
        "latency_share": latency_share.value if latency_share else None,
        "buckets": len(steps.bucket_bytes) or len(steps.collective_bytes),
        "transferred_bytes": steps.gradient_bytes or sum(steps.bucket_bytes or steps.collective_bytes),
        "collectives": steps.pass_collectives or None,
    }
    in_passes = bool(values["collectives"]) and replay_s is not None and replay_s.high < exposed.low
    limit = slow_way(case) or (Limit(Reason.PASSES) if in_passes else None) or _sharded(case, part_s)
    limit = limit or _limit(case, latency_share)
    known = {name: value for name, value in values.items() if value is not None}
    known |= _little_compute(case)
    return case.part(FindingName.COMMUNICATION_BOUND, part_s, "exposed", known, **vars(limit))


def _little_compute(case: Case) -> dict[str, float]:
    """Operations for each byte of gradient, and how many would take as long as its transfer.

    Empty where there are certainly enough of them, or it is not known.
    """
    steps, ratio = case.steps, case.waterfall.compute_to_communication if case.waterfall else None
    if not steps.flops_per_step or not steps.gradient_bytes or ratio is None or ratio.high >= 1:
        return {}
    per_byte = steps.flops_per_step / steps.gradient_bytes
    found = {"flops_per_byte": per_byte, "hiding_flops_per_byte": per_byte / ratio.value}
    if steps.tokens_per_step:
        found["sequence_tokens"] = steps.tokens_per_step / steps.samples_per_step
    return found


def _sharded(case: Case, part_s: Estimate) -> Limit | None:
    """FSDP gathers weights twice in a step, unless it keeps them between its passes."""
    if case.config.setting.strategy != "fsdp":
        return None
    if not case.config.setting.fsdp_reshard:
        return Limit(Reason.GATHERS)
    passes = case.config.setting.gradient_accumulation  # each gathers twice, the last one scatters
    saved = case.without(part_s.scaled(passes / (2 * passes + 1)))
    return Limit(Reason.GATHERS_TWICE, change={"fsdp_reshard": False}, predicted=saved)


@dataclass(frozen=True)
class Limit:
    """What limits the transfers; the fields as in ``Finding``."""

    reason: Reason
    named: Mapping[str, str] = field(default_factory=dict)
    change: Mapping[str, KnobValue] | None = None
    predicted: Estimate | None = None


def _limit(case: Case, latency_share: Estimate | None) -> Limit:
    """Latency or bandwidth, where one has certainly more than half of the transfers' time."""
    if latency_share is None:
        sizes = " and ".join(f"{each:g}" for each in _other_sizes(case))
        return Limit(Reason.ONE_BUCKET_SIZE if sizes else Reason.UNSEPARATED, {"sizes": sizes})
    if latency_share.low > HALF:
        if len(case.steps.bucket_bytes) <= MANY_BUCKETS:
            return Limit(Reason.FEW_BUCKETS)
        one_bucket_mb = max(DEFAULT_CAP_MB, 2.0 ** int(_gradients_mib(case)).bit_length())
        return Limit(Reason.MANY_BUCKETS, change={"bucket_cap_mb": one_bucket_mb})
    if latency_share.high >= HALF:
        return Limit(Reason.BOTH)
    if case.config.setting.gradient_compression != "none":
        return Limit(Reason.COMPRESSED)
    # half the bytes cost digits, so a larger batch comes first
    return Limit(Reason.BANDWIDTH, change=None if twice_the_batch(case) else {"gradient_compression": "bf16"})


def _other_sizes(case: Case) -> list[float]:
    """Sizes of buckets, in MB, that would separate latency from bandwidth and were not measured."""
    caps = {each.config.setting.bucket_cap_mb for each in case.there if each.steps is not None}
    if _gradients_mib(case) <= 2 * min(OTHER_CAPS_MB):  # as good as one bucket under every size
        return []
    timeline = case.steps.gradient_timeline
    if timeline is None:
        measured = {DEFAULT_CAP_MB if each == "default" else each for each in caps}
        return [each for each in OTHER_CAPS_MB if each not in measured]
    known = {bucket_sizes(timeline.parameter_bytes, each) for each in caps}
    return [each for each in OTHER_CAPS_MB if bucket_sizes(timeline.parameter_bytes, each) not in known]


def _gradients_mib(case: Case) -> float:
    """As DDP fills its buckets: before they are compressed."""
    return (sum(case.steps.bucket_bytes) or case.steps.gradient_bytes or 0) / 2**20


DIRECT = "/GDRDMA"  # GPUDirect: an adapter reads a GPU's memory


def slow_way(case: Case) -> Limit | None:
    """Why transfers between nodes go a slower way than they could; None where nothing says so.

    Sockets where there are adapters of InfiniBand or the like, or such an adapter without GPUDirect.
    """
    environment, of_ranks = case.around.environment, case.steps.nccl_networks
    if (case.record.nodes or 1) == 1:
        return None
    networks = sorted({network for each in of_ranks if each for network in each.split(", ")})
    devices = environment.every_node[0].rdma_devices if environment else ()
    if "Socket" in networks:
        return Limit(Reason.SOCKETS, {"devices": ", ".join(devices)}) if devices else None
    indirect = (each for each in networks if not each.endswith(DIRECT))
    return next((Limit(Reason.HOST_MEMORY, {"network": each}) for each in indirect), None)


def latency_share_of(case: Case) -> Estimate | None:
    """The latency's share of the transfers, by trials that send the same bytes in other buckets.

    Of one bucket it is (replay_1 - replay_2) / (buckets_1 - buckets_2).
    """
    number = len(case.steps.bucket_bytes)
    mine, others = case.replays.get(number), [each for each in case.replays if each != number]
    if mine is None or not others:
        return None
    furthest = max(others, key=lambda each: abs(each - number))
    theirs, more = case.replays[furthest], number - furthest
    each_s = sum_of(mine, theirs.scaled(-1)).scaled(1 / more)
    if each_s.high <= 0:
        return None
    # no transfer has less latency than none
    return each_s.scaled(number / mine.value).map(lambda share: min(max(share, 0.0), 1.0))


def unattributed_loss(case: Case) -> Finding | None:
    """A loss of which only the whole is known, less what a slow device explains, with its communication."""
    lost, device, whole = case.parts.undivided, slow_alone(case), case.scaling.efficiency
    if case.waterfall is None and whole is not None:
        lost = whole.scaled(-case.step_s).plus(case.step_s)  # T (1 - efficiency)
    if lost is not None and device is not None and device.explains is not None:
        lost = lost.plus(-device.explains.value)
    if lost is None:
        return None
    values, replay = dict[str, float](), case.replays.get(len(case.steps.bucket_bytes))
    if replay is not None:
        # at least the transfers less all compute of one device, which could hide them; at most all of them,
        # unless compute and transfers slow each other down
        compute = case.alone.get(case.samples)
        least_s = max(replay.low - (compute.high if compute else case.step_s), 0.0)
        values["least_communication_s"] = min(least_s, lost.low)
        values["most_communication_s"] = min(replay.high, lost.high)
    why, is_script = case.steps.missing.get("local"), isinstance(case.config.workload, ScriptSpec)
    reason, named = Reason.OF_SCRIPT if is_script else None, dict[str, str]()
    if case.steps.local_collectives:
        reason = Reason.OWN_COLLECTIVES
    if case.record.request.role == "search":
        reason = Reason.SEARCHED
    if case.config.setting.strategy == "dp" or why is not None:
        reason = Reason.NO_PARTS
        if why is not None and is_script and case.steps.gradient_bytes:
            reason, named = Reason.NOT_LEFT_OUT, {"why": why}
    return case.part(FindingName.UNATTRIBUTED_LOSS, lost, "lost", values, reason=reason, named=named)
