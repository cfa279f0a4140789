"""The variants of one trial on one rank: what is run, by whom, and what could not be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch.nn.parallel import DistributedDataParallel

from raybench.records.requests import TrialRequest, Variant
from raybench.worker.batches import make_batches
from raybench.worker.communicators import Replay, Team, describe, is_out_of_memory
from raybench.worker.devices import probe as probing
from raybench.worker.steps.rounds import VariantRun
from raybench.worker.steps.warmup import warm_up
from raybench.worker.strategies.models import Bench, Lane
from raybench.workloads import Workload

Made = TypeVar("Made")


class Variants:
    """Makes the runs of a request; every method is a collective call."""

    def __init__(
        self,
        request: TrialRequest,
        workload: Workload,
        team: Team,
        device: torch.device,
        bench: Bench,
        versus: Bench | None,
        missing: dict[Variant, str],
    ) -> None:
        self._request, self._workload, self._team, self._device = request, workload, team, device
        self._bench, self._versus = bench, versus
        self.missing = missing  # variants that could not be had, and why

    def first(self) -> VariantRun:
        """What is measured: the real thing, or the bare model on one device."""
        is_plain = self._team.size == 1 and self._versus is None
        return self._plain() if is_plain else self._wrapped("synced", self._bench)

    def others(self) -> list[VariantRun]:
        """What else the request asks for, but for the twin and the replay, which come after the warm-up."""
        asked, runs = self._request.variants, list[VariantRun]()
        if self._team.size == 1:
            return [] if self._versus is None else [self._wrapped("versus", self._versus)]
        wants_bare = not {"plain", "base", "crowd"}.isdisjoint(asked)
        if wants_bare and "plain" not in self.missing and self._fits_beside():
            bare = self._bench.bare
            if "plain" in asked:
                runs.append(self._plain())
            base = self._base() if "base" in asked else None
            if base is not None:
                runs.append(base)
            if "crowd" in asked:
                crowd = VariantRun("crowd", bare.step, self._bench.activate, lambda: bare.loss, free=True)
                runs.append(replace(crowd, warm=bare.batches.warm))
        elif "base" in asked:
            self.missing["base"] = self.missing["plain"]
        if self._versus is not None:
            runs.append(self._wrapped("versus", self._versus))
        return runs

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

    def _plain(self) -> VariantRun:
        bare = self._bench.bare
        run = VariantRun("plain", bare.step, self._bench.activate, lambda: bare.loss, alone=True)
        return replace(run, warm=bare.batches.warm)

    def _wrapped(self, variant: Variant, bench: Bench) -> VariantRun:
        """The real thing of ``bench``."""
        lane, strategy = bench.wrap(self._team), bench.setting.strategy
        led = strategy == "dp"
        return VariantRun(
            variant,
            lane.step if self._team.leads or not led else lambda: None,
            bench.activate,
            lambda: lane.loss,
            led=led,
            warm=lane.batches.warm,
            # dp's weights are on the leader only, and every rank of FSDP has shards of its own
            drifting=lane.tensors if strategy == "ddp" else None,
        )

    def _base(self) -> VariantRun | None:
        """Strong scaling: the bare model at the global batch. Where it does not fit, the record says so."""
        request = self._request
        size = request.config.setting.batch_size // request.config.setting.gradient_accumulation

        def stepped() -> Lane:
            one = request.model_copy(update={"world_size": 1})
            lane = self._bench.with_batches(make_batches(self._workload, one, size, 0, self._device))
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
            return local, warm_up(self._team, [local], self._request.measure, self._device)[1]

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
        sizes = probing.bucket_bytes(probing.logging_data(self._bench.real.module))
        replay = Replay(sizes, self._team, self._device, self._bench.hook, self._bench.hook_state)
        run = VariantRun("replay", replay.step)
        _, found = warm_up(self._team, [run], self._request.measure, self._device)
        seconds.update(found)
        return [*runs, run]
