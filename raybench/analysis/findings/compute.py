"""What compute waits for on the host: DDP's own work, and the loader."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from raybench.analysis.findings.case import Case, OfTrial, PartOfStep, programs_of, stoppable
from raybench.analysis.findings.finding import FindingName, Need, Remedy, Severity
from raybench.analysis.load import load_of, loads_of
from raybench.analysis.stats.statistics import Estimate, sum_of, trimmed_mean

MOST_WORKERS = 16


class CostlyWrapper(PartOfStep):
    """DDP's copies and hooks take 5% of the step."""

    name = FindingName.COSTLY_WRAPPER

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """The wrapper's part is worth telling."""
        wrapper = case.parts.wrapper
        return cls(case, wrapper) if wrapper is not None and case.is_worth_telling(wrapper) else None

    @classmethod
    def needs(cls, case: Case) -> Need | None:
        return case.needs_variants(case.parts.wrapper)

    @property
    def values(self) -> dict[str, float]:
        return {"wrapper_s": self.part_s.value, "wrapper_share": self.share.value}

    @property
    def remedy(self) -> Remedy:
        """Views save the copies back from the buckets, not those into them, as no step keeps its gradients.

        On a core, 60 layers of 256 x 256, forward and backward pass: 11.9 ms bare, 15.6 ms under DDP without
        transfers, 12.3 ms with views, 15.7 ms with ``batched_grad_copy``, which saves launches on GPUs.
        """
        setting = self.case.config.setting
        if setting.strategy != "ddp" or setting.gradient_as_bucket_view:
            return Remedy()
        return Remedy({"gradient_as_bucket_view": True}, self.without_it)


class DataBound(PartOfStep):
    """The step waits for its batch: 5% of it at least."""

    name = FindingName.DATA_BOUND

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """The phase in which it waits is worth telling."""
        waited = case.phases().get("data")
        return cls(case, waited) if waited is not None and case.is_worth_telling(waited) else None

    @classmethod
    def needs(cls, case: Case) -> Need | None:
        return None if case.phases() else Need.PHASES

    @property
    def values(self) -> dict[str, float]:
        workers = self.case.config.setting.workers
        return {"waited_s": self.part_s.value, "waited_share": self.share.value, "workers": workers}

    @property
    def remedy(self) -> Remedy:
        """More processes for the loader, while there are cores for them."""
        now, is_real = self.case.config.setting.workers, self.case.config.workload.input == "real"
        workers = min(max(2 * now, 2), MOST_WORKERS, _cores_of_a_rank(self.case))
        return Remedy({"workers": workers}, self.without_it) if is_real and workers > now else Remedy()


def _cores_of_a_rank(case: Case) -> int:
    """Cores of the smallest node for each rank; as many as loaders ever use where the machine is not told."""
    environment, record = case.around.environment, case.record
    if environment is None:
        return MOST_WORKERS
    cores = min(node.usable_cores for node in environment.every_node)
    ranks = math.ceil(case.config.world_size / (record.nodes or 1))
    most = max((record.hostnames.count(name) for name in set(record.hostnames)), default=ranks)
    return cores // most


WORTH_TELLING, MUCH = 0.02, 0.10  # of the cores of a host
MOST_OF_IT = 0.3  # of what others took: less of it is not worth stopping


@dataclass(frozen=True)
class OtherProcesses(OfTrial):
    """Other processes took cores that the trial's workers needed: Ray's own are among them.

    It explains at most so large a share of the step as they took of the cores, and no more than computing
    side by side and waiting cost, where these were measured: alone a rank leaves the other ranks' cores to
    them. Where computing may be all theirs its interval is theirs; where it was not measured only the bound
    is known.
    """

    name = FindingName.OTHER_PROCESSES
    # they need not have taken cores from the workers: some of it may have been while these waited
    is_at_most = True
    others: float  # cores that they took
    cores: float
    spare: float  # cores that the trial did not need
    lost_in_rounds: tuple[float, ...]  # of each round, the share of the cores

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """They took 2% of the cores beyond those that were spare."""
        record, measurement = case.record, case.steps
        load = load_of(record)
        if load is None:
            return None
        # the kernel's sum over cores counts in ticks, that of programs exactly, where they can be seen
        programs = sum(measurement.other_programs.values())
        loads = [replace(each, taken=max(each.taken, programs)) for each in loads_of(record)]
        found = cls(
            case,
            max(load.taken, programs),
            load.cores,
            load.spare,
            tuple(max(0.0, each.taken - load.spare) / each.cores for each in loads),
        )
        return found if found.lost >= WORTH_TELLING else None

    @classmethod
    def needs(cls, case: Case) -> Need | None:
        return Need.LOAD if load_of(case.record) is None else None

    @property
    def is_own(self) -> bool:
        """Whether it is Ray and the kernel: they take their share wherever it runs."""
        steps = self.case.steps
        can_stop, least = stoppable(steps), MOST_OF_IT * self.others
        if max(can_stop.values(), default=0.0) >= least:
            return False
        return sum(programs_of(steps).values()) - sum(can_stop.values()) >= least

    @property
    def lost(self) -> float:
        """The share of the cores that the trial needed and did not have."""
        return max(0.0, self.others - self.spare) / self.cores

    @property
    def severity(self) -> Severity:
        """A warning from a tenth of the cores on."""
        return Severity.WARNING if self.lost >= MUCH else Severity.NOTE

    @property
    def explains(self) -> Estimate | None:
        """In proportion to the cores, in s of the step.

        Of computing side by side, and beyond that of what waits: transfers on CPUs need cores too, and a rank
        that was held up is waited for.
        """
        parts, lost_s, of_computing = self.case.parts, self._lost_s, self.of_contention
        if lost_s is None or of_computing is None:
            return None
        if parts.contention is None:
            return of_computing
        waits = (parts.wrapper, parts.skew, parts.exposed_communication)
        waits_s = sum(max(each.value, 0.0) for each in waits if each is not None)
        more_s = min(max(lost_s.value - of_computing.value, 0.0), waits_s)
        value, low, high = of_computing.value + more_s, of_computing.low, of_computing.high + more_s
        return Estimate(value, low, high, of_computing.n)

    @property
    def _lost_s(self) -> Estimate | None:
        if len(self.lost_in_rounds) < 2:
            return None
        return trimmed_mean(self.lost_in_rounds).scaled(self.case.step_s)

    @property
    def of_contention(self) -> Estimate | None:
        """What they explain of computing side by side, in s; of all that is lost where it is not known."""
        lost_s, contention = self._lost_s, self.case.parts.contention
        if lost_s is None:
            return None
        if contention is None:
            of_all = self.case.lost_s
            most_s = lost_s.value if of_all is None else min(lost_s.value, max(of_all.value, 0.0))
            return Estimate(most_s, 0.0, most_s, lost_s.n)
        # what is not more than 0 is no contention: there is nothing of it that they explain
        side_by_side = replace(contention, value=max(contention.value, 0.0), low=max(contention.low, 0.0))
        if lost_s.high >= contention.value:
            return replace(side_by_side, high=max(contention.high, 0.0))
        low, high = min(lost_s.low, side_by_side.low), min(lost_s.high, contention.high)
        return Estimate(lost_s.value, max(low, 0.0), high, lost_s.n)

    @property
    def values(self) -> dict[str, float]:
        return {
            "other_cores": self.others,
            "host_cores": self.cores,
            "lost_ratio": self.lost,
            "rounds": len(self.lost_in_rounds),
        }


@dataclass(frozen=True)
class Contention(PartOfStep):
    """All devices at once compute slower than one alone, by 5% of the step that no other process explains.

    Ranks on CPUs share cores, caches and memory, GPUs the power and cooling that set their clocks, the host's
    memory, its PCIe lanes and its cores.
    """

    name = FindingName.CONTENTION
    contention_s: Estimate  # with what others explain
    others_s: Estimate | None

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """What is left of it is worth telling."""
        contention = case.parts.contention
        if contention is None:
            return None
        others = OtherProcesses.condition(case)
        theirs = others.of_contention if others else None
        own = contention if theirs is None else sum_of(contention, theirs.scaled(-1))
        return cls(case, own, contention, theirs) if case.is_worth_telling(own) else None

    @classmethod
    def needs(cls, case: Case) -> Need | None:
        return case.needs_variants(case.parts.contention)

    @property
    def ranks(self) -> int:
        """Ranks on the host that has the most of them."""
        hosts = self.case.steps.hosts
        return max((hosts.count(host) for host in set(hosts)), default=0)

    @property
    def cores(self) -> int:
        """Cores of the smallest host; 0 where they are not known."""
        return min(self.case.steps.host_cores, default=0)

    @property
    def threads(self) -> int:
        return self.case.config.setting.num_threads or self.case.config.cpus_per_worker

    @property
    def has_too_many_threads(self) -> bool:
        return 0 < self.cores < self.ranks * self.threads

    @property
    def values(self) -> dict[str, float]:
        return {
            "contention_s": self.contention_s.value,
            "contention_share": self.contention_share.value,
        }

    @property
    def contention_share(self) -> Estimate:
        """It as a share of the step, with what others explain."""
        return self.case.share(self.contention_s)

    @property
    def remedy(self) -> Remedy:
        """No more threads than cores."""
        fitting = max(self.cores // self.ranks, 1) if self.ranks else 0
        is_fewer = not self.case.is_cuda and self.has_too_many_threads and fitting < self.threads
        return Remedy({"num_threads": fitting}) if is_fewer else Remedy()


def num_nodes(case: Case) -> int:
    """Nodes of the machine; 1 where they are not known."""
    environment = case.around.environment
    return len(environment.every_node) if environment else 1
