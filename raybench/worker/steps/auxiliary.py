"""Auxiliary measurements: what is measured when the rounds of a trial are done. None of it may cost them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from raybench.errors import InvalidTrialError
from raybench.records.messages import RankFile
from raybench.records.requests import AS_IF, StepsRequest, Variant
from raybench.records.results import Beside, StepsResult, TracedRank
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.failures import AgreedFailure, drop_frames
from raybench.worker.group_cache import GroupCache
from raybench.worker.steps import flops
from raybench.worker.steps.gradient_timeline import gradient_timeline
from raybench.worker.steps.meters import use_of_trial
from raybench.worker.steps.parity import compression_error, loss_parity
from raybench.worker.steps.profiling import memory_snapshot, phases_of_trial, traces
from raybench.worker.steps.restarts import restarts_of_trial
from raybench.worker.steps.setup import TrialModels
from raybench.worker.steps.variants import Variants

# measures on every rank: the field of a StepsResult that has the part's name, or a dict of several
Part = Callable[[], Any]


class AuxiliaryMeasurements:
    """Energy, phases, device's peak, error of compression, loss parity, restarts of the loader, traces.

    They are measured one by one.

    A part that fails equally on every rank is a reason in ``missing``. One that fails on a single rank breaks
    the team, as it would in the rounds; by then the leader has handed over what there is.
    """

    def __init__(
        self,
        request: StepsRequest,
        models: TrialModels,
        team: Team,
        device: Device,
        cache: GroupCache,
        variants: Variants,
        step_s: dict[Variant, float],
    ) -> None:
        """``variants``: those of the trial; ``step_s``: of each, on the slowest rank, from the warm-up."""
        self._request, self._models, self._team = request, models, team
        self._device, self._cache = device, cache
        self._step_s, self._has_plain = step_s, "plain" not in variants.missing
        self.files: tuple[RankFile, ...] = ()  # that this rank made

    def added_to(
        self, result: StepsResult | None, keep: Callable[[StepsResult, tuple[Beside, ...]], None]
    ) -> StepsResult | None:
        """The leader's ``result`` with every part that is requested and can be had. A collective call.

        ``keep`` is called first, and before each part, with what there is and the parts to come. Other ranks
        measure the parts too, and have no result.
        """
        parts = self._parts()
        if result is not None and not parts:
            keep(result, ())
        for done, (name, measure) in enumerate(parts.items()):
            if result is not None:
                keep(result, tuple(parts)[done:])
            found, missing = self._tried(name, measure)
            if result is not None:
                result = result.model_copy(update={**found, "missing": {**result.missing, **missing}})
        return result

    def _tried(self, name: Beside, measure: Part) -> tuple[dict[str, Any], dict[Beside, str]]:
        """What a part brings, or why it cannot be had."""
        self._models.measured.activate()
        try:
            found = measure()
            return found if isinstance(found, dict) else {name: found}, {}
        except (AgreedFailure, InvalidTrialError) as failure:
            drop_frames(failure)
            self._device.release_memory()  # what was tried must not fill it for the next part
            return {}, {name: str(failure)}

    def _parts(self) -> dict[Beside, Part]:
        """Those that are requested, in the order in which they are measured."""
        request, models, measured = self._request, self._models, self._models.measured
        team, device, cache, step_s = self._team, self._device, self._cache, self._step_s
        config, seconds, slowest_s = (
            request.config,
            request.measure.max_seconds,
            max(each for name, each in step_s.items() if name not in AS_IF),
        )
        parts: dict[Beside, Part] = {}
        if request.measures_beside_rounds and device.tells_utilization:  # first: the device is still warm
            parts["device_use"] = partial(use_of_trial, measured, team, device, step_s, seconds)
        if measured.twin is not None:
            parts["gradient_timeline"] = partial(gradient_timeline, measured, team, step_s, seconds)
        if request.measures_beside_rounds:
            parts["phases"] = partial(
                phases_of_trial,
                measured,
                team,
                has_plain=self._has_plain,
                step_s=slowest_s,
                max_seconds=seconds,
            )
            parts["matrix_peak"] = partial(flops.matrix_peak, config.setting.precision, team, cache, device)
            if measured.wrapped is not None and team.size > 1:
                if config.setting.gradient_compression != "none":
                    parts["compression_error"] = partial(compression_error, measured, team)
                parts["parity"] = partial(
                    loss_parity, config, models.workload, measured, team, cache, step_s.get("plain"), seconds
                )
            if config.workload.input == "real":
                parts["restarts"] = partial(restarts_of_trial, measured, team, seconds)
        if request.measure.memory_snapshot:
            parts["memory_snapshot"] = self._memory_snapshot
        if request.measure.profile:  # the last: on a GPU the profiler stays, and slows what follows
            parts["profile"] = partial(self._profile, slowest_s, seconds)
        return parts

    def _memory_snapshot(self) -> dict[str, Any]:
        self.files += memory_snapshot(self._models.measured, self._team, self._device)
        return {}

    def _profile(self, step_s: float, max_seconds: float) -> tuple[TracedRank, ...]:
        ranks, files = traces(self._models.measured, self._team, self._device, step_s, max_seconds)
        self.files += files
        return ranks
