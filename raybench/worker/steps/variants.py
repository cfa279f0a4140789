"""The variants of one trial on one rank: what is run, by whom, and what could not be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch.nn.parallel import DistributedDataParallel

from raybench.records.requests import StepsRequest, Variant
from raybench.worker.batches import make_batches
from raybench.worker.communicators import Team
from raybench.worker.devices import probe as probing
from raybench.worker.failures import describe, is_out_of_memory
from raybench.worker.steps.replay import Replay
from raybench.worker.steps.setup import TrialModels
from raybench.worker.steps.variant_run import VariantRun, as_measured, plain, wrapped
from raybench.worker.steps.warmup import WarmUp, warm_up
from raybench.worker.strategies.ddp_report import bucket_bytes
from raybench.worker.strategies.models import Lane

Made = TypeVar("Made")


class Variants:
    """Makes the runs of a request; every method is a collective call."""

    def __init__(self, request: StepsRequest, models: TrialModels, team: Team, device: torch.device) -> None:
        self._request, self._models, self._team, self._device = request, models, team, device
        self._bench = models.main
        self.missing: dict[Variant, str] = {}  # variants that could not be had, and why
        if models.too_large is not None:
            self.missing["plain"] = models.too_large

    def measured(self) -> VariantRun:
        """The real thing, or the bare model on one device."""
        if self._models.versus is not None:
            return wrapped("synced", self._bench, self._team)
        return as_measured(self._bench, self._team)

    def others(self) -> list[VariantRun]:
        """What else the request asks for, but for the twin and the replay, which come after the warm-up."""
        asked, runs = self._request.variants, list[VariantRun]()
        if self._team.size == 1:
            return self._versus()
        wants_bare = not {"plain", "base", "crowd"}.isdisjoint(asked)
        if wants_bare and "plain" not in self.missing and self._fits_beside():
            bare = self._bench.bare
            if "plain" in asked:
                runs.append(plain(self._bench))
            base = self._base() if "base" in asked else None
            if base is not None:
                runs.append(base)
            if "crowd" in asked:
                crowd = VariantRun("crowd", bare.step, self._bench.activate, lambda: bare.loss, free=True)
                runs.append(replace(crowd, warm=bare.batches.warm))
        elif "base" in asked:
            self.missing["base"] = self.missing["plain"]
        return [*runs, *self._versus()]

    def _versus(self) -> list[VariantRun]:
        versus = self._models.versus
        return [] if versus is None else [wrapped("versus", versus, self._team)]

    def _out_of_memory(self, attempt: Callable[[], Made]) -> tuple[list[str], Made | None]:
        """The ranks' failures to make something for want of memory, and what this rank made.

        Anything else that fails is raised.
        """
        made, failure = None, None
        try:
            made = attempt()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            failure = describe(error)
        return [found for found in self._team.gather(failure) if found], made

    def _fits_beside(self) -> bool:
        """Whether FSDP's plain copy fits beside the shards; under the other strategies it is there."""
        if self._request.config.setting.strategy != "fsdp":
            return True

        def step() -> None:
            self._bench.bare.step()
            probing.synchronize(self._device)

        failures = self._out_of_memory(step)[0]
        if failures:
            self._bench.drop_bare()
            self.missing["plain"] = f"no memory for a whole model beside the shards: {failures[0]}"
        return not failures

    def _base(self) -> VariantRun | None:
        """Strong scaling: the bare model at the global batch. Where it does not fit, the record says so."""
        config = self._request.config
        size = config.setting.batch_size // config.setting.gradient_accumulation

        def stepped() -> Lane:
            one = config.model_copy(update={"world_size": 1})
            batches = make_batches(self._models.workload, one, size, 0, self._device)
            lane = self._bench.with_batches(batches)
            lane.step()
            probing.synchronize(self._device)
            return lane

        failures, lane = self._out_of_memory(stepped)
        if failures or lane is None:
            self.missing["base"] = f"batch {size} does not fit on one device: {failures[0]}"
            return None
        return VariantRun(
            "base", lane.step, self._bench.activate, lambda: lane.loss, alone=True, warm=lane.batches.warm
        )

    def with_twin(self, runs: list[VariantRun], seconds: dict[Variant, float]) -> list[VariantRun]:
        """``runs`` with DDP without transfers, its step time added to ``seconds``, where it can be had."""
        if "local" not in self._request.variants or self._request.config.setting.strategy != "ddp":
            return runs
        if self._request.config.setting.find_unused_parameters:
            # every backward pass then ends in an all-reduce of its own, which no hook can leave out
            self.missing["local"] = "find_unused_parameters sends even where gradients stay"
            return runs

        def warmed() -> tuple[VariantRun, dict[Variant, float]]:
            lane = self._bench.twin(self._team)
            local = VariantRun(
                "local", lane.step, self._bench.activate, lambda: lane.loss, free=True, warm=lane.batches.warm
            )
            return local, warm_up(self._team, [local], WarmUp.of(self._request.measure), self._device)[1]

        failures, made = self._out_of_memory(warmed)
        if failures or made is None:
            self._bench.local = None
            self.missing["local"] = "no memory for a second set of buckets"
            return runs
        local, found = made
        seconds.update(found)
        return [*runs, local]

    def with_replay(self, runs: list[VariantRun], seconds: dict[Variant, float]) -> list[VariantRun]:
        """``runs`` with the all-reduces alone, their time added to ``seconds``."""
        if "replay" not in self._request.variants or self._bench.real is None:
            return runs
        if not isinstance(self._bench.real.module, DistributedDataParallel):
            return runs
        sizes = bucket_bytes(self._bench.real.module)
        replay = Replay(sizes, self._team, self._device, self._bench.hook, self._bench.hook_state)
        run = VariantRun("replay", replay.step)
        _, found = warm_up(self._team, [run], WarmUp.of(self._request.measure), self._device)
        seconds.update(found)
        return [*runs, run]
