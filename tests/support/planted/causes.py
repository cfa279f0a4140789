"""Studies on a sound machine with one or two faults planted: what a diagnosis must name, and must not.

A sound machine loses little to everything: 0.5 to 2% of the step each to contention, wrapper and exposed
communication, and as much of the step is fixed. A planted cause takes 12 to 60% of the step, as drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from raybench.analysis.findings.case import Around
from raybench.analysis.findings.finding import Finding, FindingName, Reason
from raybench.analysis.results import StudyResults
from raybench.machine.environment import Environment
from raybench.machine.host import DeviceKind, Resources
from raybench.plan.make_plan import make_plan
from raybench.records.results import PCIeLink
from raybench.spec.study import Study
from tests.support.analysis import analyse
from tests.support.planted.hardware import FakeHardware
from tests.support.planted.noise import Noise
from tests.support.planted.runner import FakeRunner, run_all

# As quiet cores are: blocks differ by 2%, steps by 1%, one block in twenty is preempted, by a third. Trials
# differ by 3%, and each variant in one by 1.2%, as the pool takes it where nothing is known.
NOISE = Noise(block=0.02, step=0.01, preemption=0.05, preemption_size=0.3, trial=0.03, unit=0.012)
ON_GPUS = replace(NOISE, block=0.005, step=0.005, preemption=0.0, trial=0.01, unit=0.004)
LEAST, MOST = 0.12, 0.60  # of the step that a planted cause takes
BATCH = 64
MIB = 2**20


@dataclass(frozen=True)
class Site:
    """A machine and a study on it, before and after causes are planted."""

    hardware: FakeHardware
    world_size: int
    step_s: float  # of the sound machine
    device: DeviceKind = "cpu"
    noise: Noise = NOISE
    knobs: dict[str, Any] = field(default_factory=lambda: {"batch_size": [BATCH]})
    fields: dict[str, Any] = field(default_factory=dict)  # of the study
    variants: tuple[str, ...] = ()  # all but these are missing; empty: none is

    @property
    def fixed_s(self) -> float:
        """What a step costs whatever its batch."""
        return self.hardware.fixed_s


Plant = Callable[[Site, float, np.random.Generator], Site]


@dataclass(frozen=True)
class PlantedCause:
    """A fault; ``plant`` makes it take so many seconds of the step."""

    name: FindingName
    plant: Plant
    pairs: bool = True  # whether it can stand beside another one
    kind: str = ""  # of several ways to the same finding
    reason: Reason | None = None  # that the finding must have; None: whatever it has

    def is_named_by(self, found: Finding) -> bool:
        """Whether a finding names it."""
        return found.name is self.name and self.reason in (None, found.reason)


def sound_site(random: np.random.Generator) -> Site:
    """A machine without a fault."""
    step_s, size = float(random.uniform(0.008, 0.04)), int(random.choice([2, 4, 8]))
    small = random.uniform(0.005, 0.02, size=4) * step_s
    hardware = FakeHardware(
        fixed_s=float(small[0]),
        sample_s=step_s / BATCH,
        contention=float(small[1] / step_s / (size - 1)),
        wrapper_s=float(small[2]),
        gradient_bytes=20 * MIB,
        bandwidth_bytes_per_s=20 * MIB * 2 * (size - 1) / size / float(small[3]),
        latency_s=1e-6,
        overlap=0.0,
    )
    return Site(hardware, size, step_s)


def simulate(
    causes: Sequence[PlantedCause], seed: int, *, louder: float = 1.0, visits: int = 3
) -> tuple[StudyResults, list[FindingName]]:
    """A study with these causes, the first at least twice the second, and the names in that order.

    ``louder``: by this factor noise is more than on quiet cores.
    """
    random = np.random.default_rng(seed)
    site, share = sound_site(random), float(random.uniform(LEAST, MOST))
    for cause in causes:
        # a share of the whole step is more of the sound one
        site = cause.plant(site, site.step_s * share / (1 - share), random)
        share = max(share / 2, LEAST / 2)
    noise = {name: louder * value for name, value in vars(site.noise).items()}
    return measure(replace(site, noise=Noise(**noise)), seed, visits), [cause.name for cause in causes]


def measure(site: Site, seed: int, visits: int = 3) -> StudyResults:
    """The study on one device and on all, each setting visited so often, measured and analysed."""
    fields = {"name": "planted", "workload": {"name": "mlp"}, "knobs": site.knobs} | site.fields
    study = Study.model_validate(
        fields
        | {"scaling": {"world_sizes": [1, site.world_size]} | fields.get("scaling", {})}
        | {"measure": {"visits": visits} | fields.get("measure", {})}
    )
    runner = FakeRunner(
        site.hardware.costs, site.noise, seed=seed, num_devices=site.world_size, device=site.device
    )
    cores = site.world_size
    plan = make_plan(study, Resources(site.device, cores, f"fake {site.device}"))
    requests = [*plan.trials(), *plan.visits([])]
    if site.variants:
        requests = [
            each.model_copy(update={"variants": tuple(v for v in each.variants if v in site.variants)})
            for each in requests
            if each.kind == "steps"
        ]
    records = run_all(runner, requests)[0]
    return analyse(plan.study, records, around=Around(environment=_environment(site)))


def faults(found: Sequence[Finding]) -> list[Finding]:
    """The findings that claim a fault: they explain time, or are no mere note."""
    return [each for each in found if each.explains is not None or each.severity != "note"]


def _environment(site: Site) -> Environment:
    return Environment(
        hostname="node0",
        os="fake",
        kernel="fake",
        cpu_model="fake",
        cores=site.world_size,
        usable_cores=site.world_size,
        memory_bytes=1 << 34,
        python="3",
    )


def _changed(site: Site, **hardware: Any) -> Site:
    extra = hardware.pop("extra", {})
    changed = replace(site.hardware, **hardware)
    return replace(site, hardware=replace(changed, extra=changed.extra | extra))


def _slow_link(site: Site, seconds: float) -> Site:
    carried = site.hardware.gradient_bytes * 2 * (site.world_size - 1) / site.world_size
    return _changed(site, bandwidth_bytes_per_s=carried / seconds)


def _bandwidth(site: Site, seconds: float, random: np.random.Generator) -> Site:
    return replace(_slow_link(site, seconds), knobs=site.knobs | {"bucket_cap_mb": ["default", 1]})


def _latency(site: Site, seconds: float, random: np.random.Generator) -> Site:
    return replace(_changed(site, latency_s=seconds / 20), knobs=site.knobs | {"bucket_cap_mb": [1, 25]})


def _communication(site: Site, seconds: float, random: np.random.Generator) -> Site:
    return _slow_link(site, seconds)


def _global_batch(site: Site, seconds: float, random: np.random.Generator) -> Site:
    n = site.world_size
    return replace(
        _changed(site, fixed_s=seconds / (1 - 1 / n)),
        fields={"scaling": {"mode": "strong"}},
        knobs=site.knobs | {"batch_size": [BATCH * n]},
    )


def _small_batch(site: Site, seconds: float, random: np.random.Generator) -> Site:
    return replace(_changed(site, fixed_s=seconds), knobs=site.knobs | {"batch_size": [BATCH, 4 * BATCH]})


def _straggler(site: Site, seconds: float, random: np.random.Generator) -> Site:
    offsets = [0.0] * site.world_size
    offsets[int(random.integers(site.world_size))] = seconds
    return _changed(site, offset_s=tuple(offsets))


def _jitter(site: Site, seconds: float, random: np.random.Generator) -> Site:
    return _changed(site, jitter_s=seconds / (1 - 1 / site.world_size))


def _uneven_batches(site: Site, seconds: float, random: np.random.Generator) -> Site:
    fields = {"workload": {"name": "text", "input": "real", "padding": "longest"}}
    return replace(_jitter(site, seconds, random), fields=site.fields | fields)


def _contention(site: Site, seconds: float, random: np.random.Generator) -> Site:
    return _changed(site, contention=seconds / site.step_s / (site.world_size - 1))


def _on_gpus(site: Site, seconds: float, random: np.random.Generator) -> Site:
    return replace(_contention(site, seconds, random), device="cuda", noise=ON_GPUS)


def _other_processes(site: Site, seconds: float, random: np.random.Generator) -> Site:
    taken = site.world_size * seconds / (site.step_s + seconds)
    told = {"other_cores": taken, "host_cores": site.world_size}
    return _changed(_contention(site, seconds, random), extra=told)


def _loader(site: Site, seconds: float, random: np.random.Generator) -> Site:
    fields = {"workload": {"name": "vision", "input": "real"}}
    return replace(_changed(site, data_s=seconds), fields=site.fields | fields)


def _wrapper(site: Site, seconds: float, random: np.random.Generator) -> Site:
    return _changed(site, wrapper_s=seconds)


def _step_times_alone(site: Site, seconds: float, random: np.random.Generator) -> Site:
    still_faster = 0.6 * site.step_s * (site.world_size - 1)
    return replace(_slow_link(site, min(seconds, still_faster)), variants=("plain", "ddp"))


def _negative(site: Site, seconds: float, random: np.random.Generator) -> Site:
    slower = site.step_s * (site.world_size - 1) + seconds * 2
    return replace(_slow_link(site, slower), variants=("plain", "ddp"))


def _slow_device(site: Site, seconds: float, random: np.random.Generator) -> Site:
    """Rounds enough that each device is alone in several of them."""
    fields = site.fields | {"measure": {"half_width": 0.01}}
    return replace(_straggler(site, seconds, random), variants=("plain", "ddp"), fields=fields)


def _throttled(site: Site, seconds: float, random: np.random.Generator) -> Site:
    return replace(_changed(site, extra={"throttled": True}), device="cuda", noise=ON_GPUS)


def _quota(site: Site, seconds: float, random: np.random.Generator) -> Site:
    """On one rank's host, in proportion to what it costs."""
    used_up = (0.0,) * (site.world_size - 1) + (seconds / (site.step_s + seconds),)
    return _changed(site, extra={"of_result": {"quota_used_up": used_up}})


def _narrow_pcie(site: Site, seconds: float, random: np.random.Generator) -> Site:
    """A card that found fewer lanes than there are."""
    sound = PCIeLink(generation=4, lanes=16, most_generation=4, most_lanes=16)
    links = [sound] * site.world_size
    links[int(random.integers(site.world_size))] = sound.model_copy(update={"lanes": 4})
    told = {"of_result": {"pcie_links": tuple(links)}}
    return replace(_changed(site, extra=told), device="cuda", noise=ON_GPUS)


CAUSES: tuple[PlantedCause, ...] = (
    PlantedCause(FindingName.COMMUNICATION_BOUND, _bandwidth, kind="bandwidth", reason=Reason.BANDWIDTH),
    PlantedCause(
        FindingName.COMMUNICATION_BOUND, _latency, pairs=False, kind="latency", reason=Reason.MANY_BUCKETS
    ),
    PlantedCause(FindingName.COMMUNICATION_BOUND, _communication, reason=Reason.ONE_BUCKET_SIZE),
    PlantedCause(FindingName.BATCH_TOO_SMALL, _global_batch, pairs=False, kind="strong scaling"),
    PlantedCause(FindingName.BATCH_TOO_SMALL, _small_batch, pairs=False, kind="two batches"),
    PlantedCause(FindingName.DATA_BOUND, _loader),
    PlantedCause(FindingName.STRAGGLER, _straggler),
    PlantedCause(FindingName.STRAGGLER, _slow_device, pairs=False, kind="alone", reason=Reason.SLOW_ALONE),
    PlantedCause(FindingName.JITTER, _jitter),
    PlantedCause(
        FindingName.JITTER, _uneven_batches, pairs=False, kind="uneven batches", reason=Reason.BATCHES
    ),
    PlantedCause(FindingName.CONTENTION, _contention),
    PlantedCause(FindingName.CONTENTION, _on_gpus, pairs=False, kind="GPUs"),
    PlantedCause(
        FindingName.CONTENTION, _other_processes, pairs=False, kind="by others", reason=Reason.OTHERS
    ),
    PlantedCause(FindingName.COSTLY_WRAPPER, _wrapper),
    PlantedCause(FindingName.UNATTRIBUTED_LOSS, _step_times_alone, pairs=False),
    PlantedCause(FindingName.UNATTRIBUTED_LOSS, _negative, pairs=False, kind="slower than one"),
    PlantedCause(FindingName.THROTTLING, _throttled, pairs=False),
    PlantedCause(FindingName.TOO_FEW_CORES, _quota, pairs=False),
    PlantedCause(FindingName.NARROW_PCIE, _narrow_pcie, pairs=False),
)
