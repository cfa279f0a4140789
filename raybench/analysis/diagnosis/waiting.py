"""Ranks that take turns in making the others wait: skew beyond what a straggler explains."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from raybench.analysis.diagnosis.case import Case, PartOfStep
from raybench.analysis.diagnosis.evenness import Straggler
from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep
from raybench.analysis.diagnosis.words import ms
from raybench.analysis.estimates.statistics import Estimate
from raybench.spec.workloads import FactorySpec, TextSpec


class TakingTurns(PartOfStep):
    """Ranks that wait for now one, now another, by 5% of the step."""

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """Skew less a straggler's is worth telling."""
        skew = case.parts.skew
        if skew is None or not cls.is_of(case):
            return None
        straggles = case.finding(Straggler)
        constant_s = straggles.explains.value if straggles and straggles.explains else 0.0
        rest = Estimate(
            skew.value - constant_s, skew.low - constant_s, skew.high - constant_s, skew.n, skew.starts
        )
        return cls(case, rest) if case.is_worth_telling(rest) else None

    @classmethod
    @abstractmethod
    def is_of(cls, case: Case) -> bool:
        """Whether the trial's ranks wait for this reason."""

    def _evidence(self, why: str) -> Evidence:
        return Evidence(
            f"ranks wait {ms(self.part_s)} in a step for one that is another from step to step{why}",
            {"waited_s": self.part_s.value, "waited_share": self.share.value},
        )


class UnevenBatches(TakingTurns):
    """Batches that are longer on one rank than on another: of texts that are padded to the longest."""

    name = FindingName.UNEVEN_BATCHES

    @classmethod
    def is_of(cls, case: Case) -> bool:
        """Where batches are of uneven length."""
        return _varies(case)

    def evidence(self) -> Evidence:
        """How long they wait."""
        return self._evidence(
            ": batches of uneven length, or other work that comes and goes; the times do not tell which"
        )

    def next_step(self) -> NextStep:
        """Batches of one length."""
        return NextStep(
            "give all ranks batches of like length (sort by length, or pad to one shape); else see what runs "
            "on the hosts"
        )


class Jitter(TakingTurns):
    """Batches that are not known to be uneven, made so by the machine."""

    name = FindingName.JITTER

    @classmethod
    def is_of(cls, case: Case) -> bool:
        """Where all batches have one shape, or nothing tells."""
        return not _varies(case)

    def evidence(self) -> Evidence:
        """How long they wait."""
        workload = self.case.config.workload
        if isinstance(workload, FactorySpec) and workload.input == "real":
            return self._evidence(
                ": the hosts do other work that comes and goes, or batches differ in length, which is not "
                "told of a workload of one's own"
            )
        return self._evidence(
            ", though all batches have one shape: the hosts do other work that comes and goes"
        )

    def next_step(self) -> NextStep:
        """A core for that work."""
        return NextStep("see what else runs on the hosts (top): stop it, or measure when it is done")


def _varies(case: Case) -> bool:
    workload = case.config.workload
    return isinstance(workload, TextSpec) and workload.input == "real" and workload.padding == "longest"
