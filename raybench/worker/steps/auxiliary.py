"""Auxiliary measurements: what is measured when the rounds of a trial are done. None of it may cost them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raybench.errors import InvalidTrialError
from raybench.records.messages import RankFile
from raybench.records.requests import StepsRequest, Variant
from raybench.records.results import Beside, StepsResult
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.failures import AgreedFailure, drop_frames
from raybench.worker.group_cache import GroupCache
from raybench.worker.steps import flops
from raybench.worker.steps.gradient_timeline import gradient_timeline
from raybench.worker.steps.parity import compression_error, loss_parity
from raybench.worker.steps.profiling import memory_snapshot, phases_of_trial, traces
from raybench.worker.steps.restarts import restarts_of_trial
from raybench.worker.steps.setup import TrialModels

# measures on every rank; fields of a StepsResult, by name
Part = Callable[[], dict[str, Any]]


class AuxiliaryMeasurements:
    """Phases, device's peak, error of compression, loss parity, restarts of the loader, traces: one by one.

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
        *,
        step_s: dict[Variant, float],
        has_plain: bool,
    ) -> None:
        """``step_s``: of each variant, on the slowest rank, from the warm-up."""
        self._request, self._models, self._team = request, models, team
        self._device, self._cache = device, cache
        self._step_s, self._has_plain = step_s, has_plain
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
            return measure(), {}
        except (AgreedFailure, InvalidTrialError) as failure:
            drop_frames(failure)
            self._device.release_memory()  # what was tried must not fill it for the next part
            return {}, {name: str(failure)}

    def _parts(self) -> dict[Beside, Part]:
        """Those that are requested, in the order in which they are measured."""
        request, measured, team, device = self._request, self._models.measured, self._team, self._device
        config, max_seconds, slowest_s = (
            request.config,
            request.measure.max_seconds,
            max(self._step_s.values()),
        )
        parts: dict[Beside, Part] = {}
        if measured.twin is not None:
            parts["gradient_timeline"] = lambda: {
                "gradient_timeline": gradient_timeline(
                    measured,
                    team,
                    step_s=self._step_s["local"],
                    replay_s=self._step_s.get("replay"),
                    max_seconds=max_seconds,
                )
            }
        if request.measures_beside_rounds:
            parts["phases"] = lambda: {
                "phases": phases_of_trial(
                    measured, team, has_plain=self._has_plain, step_s=slowest_s, max_seconds=max_seconds
                )
            }
            parts["matrix_peak"] = lambda: {
                "matrix_peak_flops_per_s": flops.matrix_peak(
                    config.setting.precision, team, self._cache, device
                )
            }
            if measured.wrapped is not None and team.size > 1:
                if config.setting.gradient_compression != "none":
                    parts["compression_error"] = lambda: {
                        "compression_error": compression_error(measured, team)
                    }
                parts["parity"] = lambda: {
                    "parity": loss_parity(
                        config,
                        self._models.workload,
                        measured,
                        team,
                        self._cache,
                        step_s=self._step_s.get("plain"),
                        max_seconds=max_seconds,
                    )
                }
            if config.workload.input == "real":
                parts["restarts"] = lambda: {"restarts": restarts_of_trial(measured, team, max_seconds)}
        if request.measure.memory_snapshot:
            parts["memory_snapshot"] = self._memory_snapshot
        if request.measure.profile:  # the last: on a GPU the profiler stays, and slows what follows
            parts["profile"] = lambda: self._profile(slowest_s)
        return parts

    def _memory_snapshot(self) -> dict[str, Any]:
        self.files += memory_snapshot(self._models.measured, self._team, self._device)
        return {}

    def _profile(self, step_s: float) -> dict[str, Any]:
        ranks, files = traces(
            self._models.measured,
            self._team,
            self._device,
            step_s=step_s,
            max_seconds=self._request.measure.max_seconds,
        )
        self.files += files
        return {"profile": ranks}
