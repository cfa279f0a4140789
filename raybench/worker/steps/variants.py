"""The variants of one trial on one rank: which of those asked for can be had, and why not the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch.nn.parallel import DistributedDataParallel

from raybench.records.requests import StepsRequest, Variant
from raybench.worker.batches import make_batches
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device
from raybench.worker.failures import describe, drop_frames, is_out_of_memory
from raybench.worker.steps.replay import Replay
from raybench.worker.steps.setup import TrialModels
from raybench.worker.steps.variant_run import VariantRun, bare_run, measured_run, plain_run, strategy_run
from raybench.worker.steps.warmup import WarmUp, warm_up
from raybench.worker.strategies.ddp_report import bucket_bytes
from raybench.worker.strategies.stepper import Stepper

STEPS_UNTIL_REBUILT = 2  # DDP rebuilds its buckets before the second step

Made = TypeVar("Made")


class Variants:
    """Makes the runs of a request; every method is a collective call."""

    def __init__(self, request: StepsRequest, models: TrialModels, team: Team, device: Device) -> None:
        self._request, self._team, self._device = request, team, device
        self._models, self._workload, self._versus = models.measured, models.workload, models.versus
        self._warm_up = WarmUp.of(request.measure)
        self.missing: dict[Variant, str] = {}  # variants that could not be had, and why
        if models.too_large is not None:
            self.missing["plain"] = models.too_large

    def measured(self) -> VariantRun:
        """What is measured: the model under its strategy, or the bare one where one device is all."""
        if self._versus is not None:
            return strategy_run("synced", self._models, self._team)
        return measured_run(self._models, self._team)

    def others(self) -> list[VariantRun]:
        """What else the request asks for, but for the twin and the replay, which come after the warm-up."""
        bare = [] if self._team.size == 1 else self._bare_variants()
        if self._versus is None:
            return bare
        return [*bare, strategy_run("versus", self._versus, self._team)]

    def with_twin(self, runs: list[VariantRun], step_s: dict[Variant, float]) -> list[VariantRun]:
        """``runs`` with DDP without transfers, its step time added to ``step_s``, where it can be had."""
        setting = self._request.config.setting
        if "local" not in self._request.variants or setting.strategy != "ddp":
            return runs
        if setting.find_unused_parameters:
            # every backward pass then ends in an all-reduce of its own, which no hook can leave out
            self.missing["local"] = "find_unused_parameters sends even where gradients stay"
            return runs

        twin = self._twin()
        if twin is None:
            self._models.twin = None
            self.missing["local"] = "no memory for a second set of buckets"
            return runs
        local = bare_run("local", self._models, twin, independent=True)
        step_s.update(warm_up(self._team, [local], self._warm_up, self._device)[1])
        return [*runs, local]

    def _twin(self) -> Stepper | None:
        """DDP without transfers, stepped until it has all its memory; None where a rank has not enough.

        Each attempt ends before the ranks meet again: nothing is sent when this DDP is made, and in the
        second step it allocates when it has agreed on the order of its buckets.
        """
        failures, twin = self._unless_out_of_memory(lambda: self._models.make_twin(self._team))
        for _ in range(STEPS_UNTIL_REBUILT):
            if failures or twin is None:
                return None
            failures, _ = self._unless_out_of_memory(lambda: self._step_alone(twin))
        return None if failures else twin

    def _step_alone(self, stepper: Stepper) -> None:
        self._models.activate()
        stepper.step()
        self._device.synchronize()

    def with_replay(self, runs: list[VariantRun], step_s: dict[Variant, float]) -> list[VariantRun]:
        """``runs`` with the all-reduces alone, their time added to ``step_s``."""
        wrapped = self._models.wrapped
        if "replay" not in self._request.variants or wrapped is None:
            return runs
        if not isinstance(wrapped.module, DistributedDataParallel):
            return runs
        sizes = bucket_bytes(wrapped.module)
        replay = Replay(sizes, self._team, self._device.torch_device, self._models.communication)
        run = VariantRun("replay", replay.step)
        step_s.update(warm_up(self._team, [run], self._warm_up, self._device)[1])
        return [*runs, run]

    def _bare_variants(self) -> list[VariantRun]:
        """Those of the bare model: plain, base and crowd, as far as they are asked for and fit."""
        asked, runs = self._request.variants, list[VariantRun]()
        if {"plain", "base", "crowd"}.isdisjoint(asked) or "plain" in self.missing or not self._fits_beside():
            if "base" in asked:
                self.missing["base"] = self.missing["plain"]
            return runs
        if "plain" in asked:
            runs.append(plain_run(self._models))
        if "base" in asked:
            base = self._base()
            runs += [base] if base is not None else []
        if "crowd" in asked:
            runs.append(bare_run("crowd", self._models, self._models.bare, independent=True))
        return runs

    def _fits_beside(self) -> bool:
        """Whether FSDP's plain copy fits beside the shards; under the other strategies it is there."""
        if not self._models.is_sharded:
            return True

        failures = self._unless_out_of_memory(lambda: self._step_alone(self._models.bare))[0]
        if failures:
            self._models.drop_bare()
            self.missing["plain"] = f"no memory for a whole model beside the shards: {failures[0]}"
        return not failures

    def _base(self) -> VariantRun | None:
        """Strong scaling: the bare model at the global batch. Where it does not fit, the record says so."""
        config = self._request.config
        size = config.setting.batch_size // config.setting.gradient_accumulation

        def make_and_step() -> Stepper:
            one_rank = config.model_copy(update={"world_size": 1})
            batches = make_batches(self._workload, one_rank, size, 0, self._device)
            stepper = self._models.bare_with(batches)
            self._step_alone(stepper)
            return stepper

        failures, stepper = self._unless_out_of_memory(make_and_step)
        if failures or stepper is None:
            self.missing["base"] = f"batch {size} does not fit on one device: {failures[0]}"
            return None
        return bare_run("base", self._models, stepper, one_rank=True)

    def _unless_out_of_memory(self, attempt: Callable[[], Made]) -> tuple[list[str], Made | None]:
        """The ranks' failures to make something for want of memory, and what this rank made.

        Where ``attempt`` runs collective calls, memory may run out only after the last of them: another rank
        would wait in it. Anything else that fails is raised.
        """
        made, failure = None, None
        try:
            made = attempt()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            failure = describe(error)
            drop_frames(error)
        return [reason for reason in self._team.gather(failure) if reason], made
