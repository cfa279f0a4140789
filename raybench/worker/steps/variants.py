"""The variants of one trial on one rank: how each is run, which can be had, and their warm-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch

from raybench.errors import InvalidTrialError
from raybench.records.requests import AS_IF, AsIf, AsIfVariant, StepsRequest, Variant
from raybench.records.results import HeldSteps
from raybench.spec.knobs import Setting
from raybench.worker.batches import Batches, make_batches
from raybench.worker.communicators import Made, Team, collectives_alone
from raybench.worker.devices.device import Device
from raybench.worker.failures import AgreedFailure, drop_frames, is_out_of_memory
from raybench.worker.memory import allocator_retries
from raybench.worker.steps.as_if import AsIfSteps, Floats, rank_times, waits_s
from raybench.worker.steps.replay import Replay, ShardedReplay
from raybench.worker.steps.setup import TrialModels
from raybench.worker.strategies.ddp import bucket_bytes, no_transfer, travelling_share
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.stepper import Stepper


@dataclass(frozen=True)
class VariantRun:
    """How a variant is run on this rank."""

    variant: Variant
    step: Callable[[], None]
    activate: Callable[[], None] = lambda: None  # before a block of its steps
    release: Callable[[], None] = lambda: None  # after it: gives back what only this variant needs
    loss: Callable[[], torch.Tensor | None] = lambda: None
    one_rank: bool = False  # on one rank at a time, which changes from round to round
    leader_only: bool = False  # the leader's process drives every device, the other ranks wait
    independent: bool = False  # on all ranks, which do not wait for each other
    batches: Batches | None = None  # that a step takes; None: it takes none
    batches_per_step: int = 1
    # weights and optimizer state, where the ranks' may differ and have to be made equal before a block
    replicated: Callable[[], list[torch.Tensor]] | None = None

    @property
    def changes_weights(self) -> bool:
        """Whether ranks hold different weights afterwards."""
        return self.one_rank or self.independent


def measured_run(models: StrategyModels, team: Team, anchor: Setting | None = None) -> VariantRun:
    """What is measured: under its strategy, or the bare model on one device alone. A collective call."""
    return strategy_run("ddp", models, team) if team.size > 1 or anchor else plain_run(models)


def plain_run(models: StrategyModels) -> VariantRun:
    """One device alone, without a wrapper."""
    return replace(run_of("plain", models, models.bare), one_rank=True)


def strategy_run(variant: Variant, models: StrategyModels, team: Team) -> VariantRun:
    """The model under its strategy. A collective call."""
    stepper, strategy = models.wrap(team), models.setting.strategy
    run = replace(run_of(variant, models, stepper), leader_only=strategy == "dp")
    if run.leader_only and not team.leads:
        return replace(run, step=lambda: None)
    # dp's weights are on the leader only, and every rank of FSDP has shards of its own
    return replace(run, replicated=stepper.tensors) if strategy == "ddp" else run


def run_of(variant: Variant, models: StrategyModels, stepper: Stepper) -> VariantRun:
    """By ``stepper`` of ``models``."""
    run = VariantRun(
        variant,
        stepper.step,
        models.activate,
        loss=lambda: stepper.loss,
        batches=stepper.batches,
        batches_per_step=stepper.batches_per_step,
    )
    # dp's leader computes on the GPUs of other processes, which would find no memory that it had kept
    return replace(run, release=models.device.release_memory) if models.setting.strategy == "dp" else run


REBUILT_AFTER = 3  # steps: DDP rebuilds its buckets before the second, the third is as all that follow
WINDOW_STEPS = 3
STEADY = 0.05  # relative change between two windows
WARMUP_SHARE = 0.25  # of the trial's time, for each variant


def warm_up(
    team: Team, device: Device, runs: Sequence[VariantRun], fixed_steps: int | None, max_seconds: float
) -> dict[Variant, float]:
    """The step time of each variant in s (the slowest rank's).

    ``fixed_steps``: None: until steady; ``max_seconds``: of the trial, of which each takes a share at most.

    Synchronised variants go first, with a fully synchronised step: ``static_graph`` asserts otherwise.
    """
    step_s = dict[Variant, float]()
    for run in sorted(runs, key=lambda run: run.changes_weights):
        run.activate()
        team.barrier()
        # what is measured is warmed until steady; the others have its caches, and follow
        until_steady = run.variant == "ddp" or team.size == 1
        step_s[run.variant] = _warm(team, device, run, fixed_steps, max_seconds, until_steady)
        run.release()
    return step_s


def _warm(
    team: Team, device: Device, run: VariantRun, fixed: int | None, max_seconds: float, until_steady: bool
) -> float:
    """The step time of the last window in s, on the slowest rank."""
    began, before = perf_counter(), 0.0
    _time_steps(run, REBUILT_AFTER if fixed is None else max(fixed, 1), device)
    while True:
        times = _time_steps(run, WINDOW_STEPS, device)
        # every rank's view, so that all go on or stop together
        views = team.gather((median(times), perf_counter() - began))
        now, elapsed = max(view[0] for view in views), max(view[1] for view in views)
        steady = before > 0 and abs(now / before - 1) <= STEADY
        if not until_steady or fixed is not None or steady or elapsed > WARMUP_SHARE * max_seconds:
            return float(now)
        before = now


def _time_steps(run: VariantRun, count: int, device: Device) -> list[float]:
    times = []
    for _ in range(count):
        began = perf_counter()
        run.step()
        device.synchronize()
        times.append(perf_counter() - began)
    return times


LEAST_AS_IF_STEPS = 12  # of three rounds of the shortest block
STEPS_UNTIL_REBUILT = 2  # DDP rebuilds its buckets before the second step


class Variants:
    """Makes and warms up what the rounds of a request run; every method is a collective call."""

    def __init__(
        self, request: StepsRequest, models: TrialModels, team: Team, device: Device, held: ExitStack
    ) -> None:
        """``held`` is closed when the trial ends."""
        self._request, self._team, self._device = request, team, device
        self._trial_models, self._models, self._held = models, models.measured, held
        self.runs = list[VariantRun]()  # warmed up
        self.step_s = dict[Variant, float]()  # of each, on the slowest rank
        self.missing: dict[Variant, str] = {}  # variants that could not be had, and why
        self.collective_bytes: tuple[int, ...] = ()  # of FSDP's collectives in a step
        # of the passes in a step, beside those of DDP or FSDP; None: neither of them
        self.pass_collectives: int | None = None
        self.held: tuple[HeldSteps, ...] = ()  # what is added to the steps as if on more devices
        if models.too_large is not None:
            self.missing["plain"] = models.too_large

    def add(self, *runs: VariantRun) -> None:
        """Warm ``runs`` up for the rounds."""
        steps, seconds = self._request.measure.warmup_steps, self._request.measure.max_seconds
        self.step_s |= warm_up(self._team, self._device, runs, steps, seconds)
        self.runs += runs

    def add_others(self) -> None:
        """What else is requested and can be had: of the bare model, then what has models of its own."""
        self._count_pass_collectives()
        self._add_twin()  # before the others, whose steps are tried next to it
        if self._team.size > 1:
            self.add(*self._bare_variants())
        self._add_as_if()
        self._add_replay()
        self._add_anchor()

    def _count_pass_collectives(self) -> None:
        """Those of a step with the team as torch's default group, less those of one with this rank alone.

        The latter are of DDP or FSDP, which name their group. Raises ``InvalidTrialError`` on every rank
        where a model has kept the group that it found when it was made: there is nobody in it but this rank.
        """
        wrapped, team = self._models.wrapped, self._team
        if wrapped is None or self._models.setting.strategy == "dp":
            return

        def sent_with(group: Any) -> int:
            wrapped.group, before = group, team.num_sent()
            wrapped.step()
            return team.num_sent() - before

        self._models.activate()
        # compiled code has the group of its compilation, and would be compiled again for another
        with torch.compiler.set_stance("force_eager") if self._models.setting.compile else nullcontext():
            kept, sent = collectives_alone(), sent_with(team.data)
            if any(team.gather(collectives_alone() - kept)):
                raise InvalidTrialError(
                    "the forward pass communicates in a group that was found where the model was made, on "
                    "one device alone: let it ask torch.distributed in each pass"
                )
            sent -= sent_with(None)
            wrapped.group = team.data
        self.pass_collectives = team.from_leader(max(sent, 0))  # below 0 where a hook sends more from now on

    def _add_twin(self) -> None:
        """The same without transfers."""
        models, setting = self._models, self._request.config.setting
        if "local" not in self._request.variants or setting.strategy not in ("ddp", "fsdp"):
            return
        sent = self._team.num_sent()
        run = self._twin()
        if run is not None and models.is_sharded and any(self._team.gather(self._team.num_sent() - sent)):
            # as fp16's scaler does, and clipping
            self.missing["local"] = "the step looks at the gradients of all ranks"
        if run is None or "local" in self.missing:
            models.twin = None
            self._device.release_memory()  # DDP forms cycles, which hold its buckets
            return
        self.add(run)

    def _unsent(self, stepper: Stepper) -> VariantRun:
        """Steps that no rank waits for another in: of the twin, of the bare model, or of FSDP itself."""
        models = self._models
        run, collectives = replace(run_of("local", models, stepper), independent=True), models.collectives
        if collectives is None:
            return run

        def activate() -> None:
            models.activate()
            collectives.leave_out()

        # a loss with weights that nobody has says nothing
        return replace(run, activate=activate, release=collectives.put_back, loss=lambda: None)

    def _twin(self) -> VariantRun | None:
        """What sends nothing, stepped until it has all its memory; None where a rank has not enough.

        Each attempt ends before the ranks meet again: nothing is sent when DDP's twin is made, and in the
        second step it allocates when it has agreed on the order of its buckets.
        """
        why = "no memory for steps without transfers"
        run = self._had("local", why, lambda: self._unsent(self._models.make_twin(self._team)))
        for _ in range(STEPS_UNTIL_REBUILT):
            run = run and self._had("local", why, partial(self._stepped, run))
        return run

    def _stepped(self, run: VariantRun) -> VariantRun:
        run.activate()
        try:
            run.step()
            self._device.synchronize()
        finally:
            run.release()
        return run

    def _add_as_if(self) -> None:
        """Steps as if on more devices, after the twin, whose buckets they share."""
        asked, models, measure = self._request.as_if, self._models, self._request.measure
        why = self._why_no_as_if() if asked else None
        if not asked or why:
            self.missing |= dict.fromkeys(AS_IF[: len(asked)], why or "")
            return
        steps = AsIfSteps(
            self._team,
            self._device,
            models.communication,
            self._bucket_bytes(),
            share=travelling_share(models.copies.model, models.setting.gradient_compression),
        )
        self._held.callback(steps.close)
        for name, each in zip(AS_IF, asked, strict=False):
            as_if_s = self.step_s["ddp"] + steps.held(each).held_s
            if as_if_s > measure.max_seconds / LEAST_AS_IF_STEPS:
                self.missing[name] = (
                    f"a step would take {as_if_s:.3g} s, too long for a trial of "
                    f"{measure.max_seconds:g} s (measure.max_seconds)"
                )
        if all(name in self.missing for name in AS_IF[: len(asked)]):
            return
        local = next(run for run in self.runs if run.variant == "local")
        local.activate()
        ranks = rank_times(self._team, self._device, local.step, self.step_s["local"])
        self._device.tune_pause()  # while its clock is that of steps
        made = list[VariantRun]()
        for name, each in zip(AS_IF, asked, strict=False):
            held = steps.held(each)
            if name not in self.missing:
                run, waits = self._as_if_run(name, each, steps, ranks)
                held = held.model_copy(update={"waited_s": float(waits.mean())})
                made.append(run)
            self.held += (held,)
        self.add(*made)

    def _why_no_as_if(self) -> str | None:
        if self._models.setting.strategy != "ddp":
            return "only DDP's buckets can be held"
        if self._models.twin is None:
            return self.missing.get("local", "needs the steps without transfers")
        if self._models.communication.own is not None:
            return "the workload sends by a hook of its own"
        if self._models.setting.find_unused_parameters:
            return "find_unused_parameters sends besides the buckets"
        if self.pass_collectives and self._device.data_backend == "gloo":
            # which pairs collectives by the order of calls, and those that are held are called by a thread
            return "the model communicates in its passes, over gloo"
        largest, on = max(self._bucket_bytes()), self._device.torch_device
        try:
            self._team.agreed(lambda: torch.zeros(largest // 4, device=on), is_out_of_memory)
        except AgreedFailure as failure:
            return f"no memory for one more bucket: {failure}"
        return None

    def _bucket_bytes(self) -> tuple[int, ...]:
        """Of DDP, once it has rebuilt them; empty under another strategy."""
        wrapped = self._models.wrapped
        return () if wrapped is None else bucket_bytes(wrapped.module)

    def _as_if_run(
        self, name: AsIfVariant, asked: AsIf, steps: AsIfSteps, ranks: Sequence[Floats]
    ) -> tuple[VariantRun, Floats]:
        """``ranks``: their steps at the trial's own batch. With draws of the wait for the slowest, in s."""
        models, config = self._models, self._request.config
        assert models.twin is not None
        batches = models.batches
        if config.scaling == "strong":
            as_many = config.model_copy(update={"world_size": asked.world_size})
            batches = make_batches(models.workload, config, as_many.batch_size, self._team.rank, self._device)
        stepper = models.twin.on(batches, self._team.data)
        divisor = steps.divisor * models.setting.gradient_accumulation
        stepper.weigh_loss = lambda loss, batch: loss / divisor
        if batches is not models.batches:  # smaller ones: nothing is sent yet
            ranks = rank_times(self._team, self._device, stepper.step, max(each.mean() for each in ranks))
        waits = waits_s(ranks, asked.world_size, config.seed)
        hook, twin = steps.hook_of(asked), models.twin_hook
        module: Any = stepper.module

        def activate() -> None:
            models.activate()
            twin.now, module.broadcast_buffers = hook, models.setting.broadcast_buffers

        def release() -> None:
            twin.now, module.broadcast_buffers = no_transfer, False

        step, run = steps.step_after(waits, stepper.step), run_of(name, models, stepper)
        return replace(run, step=step, activate=activate, release=release), waits

    def _replay(self) -> Replay | ShardedReplay | None:
        """What a step sends, alone: DDP's all-reduces, or FSDP's gathers and scatters; None: nothing."""
        models, team, on = self._models, self._team, self._device.torch_device
        if models.collectives is not None and models.wrapped is not None:
            models.activate()
            messages = models.collectives.messages_of(models.wrapped.step)
            self.collective_bytes = tuple(each.bytes for each in messages)
            return ShardedReplay(models.collectives, messages, team, on)
        sizes = self._bucket_bytes()
        return Replay(sizes, team, on, models.communication) if sizes else None

    def _add_replay(self) -> None:
        """The transfers of a step alone."""
        replay = self._replay() if "replay" in self._request.variants else None
        if replay is None:
            return
        is_own = self._models.communication.own is not None  # it may want more than a bucket has without DDP
        try:
            self._team.agreed(replay.make_buffers, (lambda error: True) if is_own else is_out_of_memory)
            if is_own:
                self._team.agreed(replay.activate)
        except AgreedFailure as failure:
            replay.release()
            why = "the workload's hook does not run without DDP" if is_own else "no memory for what is sent"
            self.missing["replay"] = f"{why}: {failure}"
            return

        def activate() -> None:
            self._models.activate()  # of whom the setting of the process is
            replay.activate()

        self.add(VariantRun("replay", replay.step, activate, replay.release))

    def _add_anchor(self) -> None:
        """The other setting. What fails here is its own failure: the trial goes on without it."""
        if self._request.anchor is None or "anchor" not in self._request.variants:
            return
        if self._request.anchor_failure is not None:
            self.missing["anchor"] = f"not tried, as the default has failed: {self._request.anchor_failure}"
            return
        try:
            run = self._anchor_run()
        except (AgreedFailure, InvalidTrialError) as failure:
            self._trial_models.drop_anchor()
            drop_frames(failure)
            self._device.release_memory()
            self.missing["anchor"] = f"not in the rounds of this setting: {failure}"
            return
        self.add(run)

    def _anchor_run(self) -> VariantRun:
        """It has its memory, and what is measured still has it: by steps that may fail on one rank.

        A step under DDP takes what one of the bare model does. FSDP's own is not tried: one that fails midway
        leaves its modules in the middle of a step.
        """
        team, own = self._team, self._models
        models = team.agreed(self._trial_models.make_anchor)
        run = team.agreed(lambda: strategy_run("anchor", models, team))
        alone = [each for each in self.runs if each.one_rank or each.leader_only]
        if not alone and not own.is_sharded:
            alone.append(run_of("plain", own, own.bare))
        retries = 0
        for each in (run, *alone):
            for _ in range(STEPS_UNTIL_REBUILT):  # the first find what others have left
                team.agreed(partial(self._stepped, each))
            before = allocator_retries(self._device)
            team.agreed(partial(self._stepped, each))
            retries += allocator_retries(self._device) - before
        if any(team.gather(retries)):
            raise InvalidTrialError("no memory for both unless torch empties its cache in every step")
        return run

    def _bare_variants(self) -> list[VariantRun]:
        """Those of the bare model: plain, base and concurrent, if they are requested and fit."""
        wanted, runs = self._request.variants, list[VariantRun]()
        if {"plain", "base", "concurrent"}.isdisjoint(wanted):
            return runs
        if "plain" in self.missing or not self._bare_fits():
            if "base" in wanted:
                self.missing["base"] = self.missing["plain"]
            return runs
        if "plain" in wanted:
            runs.append(plain_run(self._models))
        if "base" in wanted:
            runs += self._base()
        if "concurrent" in wanted:
            runs.append(replace(run_of("concurrent", self._models, self._models.bare), independent=True))
        return runs

    def _bare_fits(self) -> bool:
        """Whether FSDP's plain copy fits next to the shards; under the other strategies it is there."""
        if not self._models.is_sharded:
            return True
        why, models = "no memory for a whole model next to the shards", self._models
        if self._had("plain", why, lambda: self._stepped(plain_run(models))) is None:
            models.drop_bare()
        return "plain" not in self.missing

    def _base(self) -> list[VariantRun]:
        """Strong scaling: the bare model at the global batch. Where it does not fit, the record says so."""
        config = self._request.config
        size = config.setting.batch_size // config.setting.gradient_accumulation

        def make_and_step() -> VariantRun:
            one_rank = config.model_copy(update={"world_size": 1})
            batches = make_batches(self._models.workload, one_rank, size, 0, self._device)
            run = run_of("base", self._models, self._models.bare.on(batches))
            return self._stepped(replace(run, one_rank=True))

        run = self._had("base", f"batch {size} does not fit on one device", make_and_step)
        return [run] if run else []

    def _had(self, name: Variant, why: str, make: Callable[[], Made]) -> Made | None:
        """What ``make`` gives; None where a rank has no memory for it. What else fails ends the trial."""
        try:
            return self._team.agreed(make, is_out_of_memory)
        except AgreedFailure as failure:
            self.missing[name] = f"{why}: {failure}"
            return None
