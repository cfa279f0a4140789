"""What compute waits for on the host: DDP's own work, and the loader."""

from __future__ import annotations

import math
from typing import Self

from raybench.analysis.diagnosis.case import Case, PartOfStep
from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep
from raybench.analysis.diagnosis.words import ms, pct

MOST_WORKERS = 16


class CostlyWrapper(PartOfStep):
    """DDP's copies and hooks take 5% of the step."""

    name = FindingName.COSTLY_WRAPPER

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """The wrapper's part is worth telling."""
        wrapper = case.parts.wrapper
        return cls(case, wrapper) if wrapper is not None and case.is_worth_telling(wrapper) else None

    def evidence(self) -> Evidence:
        """The part."""
        return Evidence(
            f"DDP's copies and hooks take {ms(self.part_s)}, {pct(self.share)} of the step, without any "
            "transfer",
            {"wrapper_s": self.part_s.value, "wrapper_share": self.share.value},
        )

    def next_step(self) -> NextStep:
        """Without copies, where there are any."""
        setting = self.case.config.setting
        if setting.strategy != "ddp" or setting.gradient_as_bucket_view:
            return NextStep("a larger batch or accumulation has fewer of them for each sample")
        return NextStep(
            "gradient_as_bucket_view saves the copies; a larger batch or accumulation has fewer of them for "
            "each sample",
            {"gradient_as_bucket_view": True},
            self.without_it,
        )


class DataBound(PartOfStep):
    """The step waits for its batch: 5% of it at least."""

    name = FindingName.DATA_BOUND
    one_device_has_it = True

    @classmethod
    def condition(cls, case: Case) -> Self | None:
        """The phase in which it waits is worth telling."""
        waited = case.phases().get("data")
        return cls(case, waited) if waited is not None and case.is_worth_telling(waited) else None

    def evidence(self) -> Evidence:
        """The phase, and the loader's processes."""
        workers = self.case.config.setting.workers
        return Evidence(
            f"{ms(self.part_s)} of the step, {pct(self.share)}, go by until the batch is there "
            f"({workers} loader processes a rank)",
            {"waited_s": self.part_s.value, "waited_share": self.share.value, "workers": workers},
        )

    def next_step(self) -> NextStep:
        """More processes, while there are cores for them."""
        now, is_real = self.case.config.setting.workers, self.case.config.workload.input == "real"
        workers = min(max(2 * now, 2), MOST_WORKERS, _cores_of_a_rank(self.case))
        if is_real and workers > now:
            words = f"more processes for the loader: workers {workers} instead of {now}"
            return NextStep(words, {"workers": workers}, self.without_it)
        if is_real:
            return NextStep(
                "cheaper batches (decoded or resized ahead): the loader has as many processes as are of use "
                "to it"
            )
        return NextStep("make batches before the steps; the loader's processes serve real input alone")


def _cores_of_a_rank(case: Case) -> int:
    """Cores of the smallest node for each rank; as many as loaders ever use where the machine is not told."""
    environment, record = case.around.environment, case.record
    if environment is None:
        return MOST_WORKERS
    cores = min(node.usable_cores for node in environment.every_node)
    ranks = math.ceil(case.config.world_size / (record.nodes or 1))
    most = max((record.hostnames.count(name) for name in set(record.hostnames)), default=ranks)
    return cores // most
