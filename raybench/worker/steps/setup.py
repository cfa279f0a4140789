"""The models of a trial on one rank: made, and stepped once alone before the first collective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

from raybench.errors import CODE_FAILS
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.worker.batches import make_batches
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.failures import describe, drop_frames, is_out_of_memory
from raybench.worker.group_cache import GroupCache
from raybench.worker.memory import check_model_fits
from raybench.worker.strategies import transforms
from raybench.worker.strategies.models import StrategyModels
from raybench.workloads import Workload, build


@dataclass(frozen=True)
class _Tried:
    """How making the models and their first step alone went on this rank."""

    stepped_s: float = 0.0
    failure: BaseException | None = None
    too_large: str | None = None  # why FSDP's model does not fit on one device


class TrialModels:
    """The model of a trial of steps or of a probe, and of its anchor, once that is made."""

    def __init__(
        self,
        config: Configuration,
        team: Team,
        device: Device,
        cache: GroupCache,
        *,
        anchor: Setting | None = None,
    ) -> None:
        self._config, self._team, self._device, self._cache = config, team, device, cache
        self._anchor_setting = anchor
        self._workload: Workload | None = None  # made with the models, where a failure is agreed on
        self._measured: StrategyModels | None = None
        self.anchor: StrategyModels | None = None
        self.epoch_samples: int | None = None  # of the training data set; None: synthetic input
        self.too_large: str | None = None  # why the model does not fit on one device; None: it does
        self.compiled_before = 0  # graphs of earlier trials

    @property
    def workload(self) -> Workload:
        """What is run, once it is set up."""
        assert self._workload is not None
        return self._workload

    @property
    def measured(self) -> StrategyModels:
        """The model that is measured, once it is set up."""
        assert self._measured is not None
        return self._measured

    @property
    def _settings(self) -> tuple[Setting, ...]:
        settings = (self._config.setting, self._anchor_setting)
        return tuple(each for each in settings if each is not None)

    @property
    def has_loaders(self) -> bool:
        """Whether processes of their own read for this rank."""
        return self.epoch_samples is not None and any(each.workers for each in self._settings)

    def num_compiled(self) -> int:
        """Graphs compiled so far in this process; 0 where nothing is compiled."""
        return transforms.num_compiled() if any(each.compile for each in self._settings) else 0

    def make_anchor(self) -> StrategyModels:
        """The models of the other setting, next to those that are measured, stepped once alone.

        Under DDP with as much memory to spare as its buckets take. Not a collective call.
        """
        assert self._anchor_setting is not None
        other = self._config.model_copy(update={"setting": self._anchor_setting})
        models = self.anchor = self._make_models(other)
        if not models.is_sharded:  # whose whole model need not fit
            spare = torch.empty(
                models.copies.gradient_bytes, dtype=torch.uint8, device=self._device.torch_device
            )
            models.activate()
            models.bare.step()
            self._device.synchronize()
            models.bare.optimizer.zero_grad(set_to_none=True)  # it is not stepped again
            del spare
        return models

    def drop_anchor(self) -> None:
        """Give back what the anchor takes, or what was made of it."""
        if self.anchor is not None:
            self.anchor.release()
        self.anchor = None

    def set_up(self, first_step: Callable[[StrategyModels], None]) -> float:
        """Make the models; the seconds that ``first_step`` of the bare one took, as the leader lived it.

        What fails here, on whichever rank, is agreed on before the first collective. A workload that the
        leader has not stepped yet it steps while the others sleep: what fails on every rank costs the time
        and memory of one rank. FSDP trains what one device has no memory for: then ``too_large`` says so, and
        the trial goes on. Where the leader went first it lived its own step, then the longest of the others.
        """
        workload, stepped = self._config.workload.model_dump_json(), self._cache.stepped
        goes_first = self._team.leads and workload not in stepped
        tried = self._try_alone(first_step) if goes_first else _Tried()
        self._team.agree(tried.failure)
        if not goes_first:
            tried = self._try_alone(first_step)
        self._team.agree(tried.failure)
        stepped.add(workload)
        sharded = self._config.setting.strategy == "fsdp"
        reasons = [reason for reason in self._team.gather(tried.too_large) if reason] if sharded else []
        if reasons:
            self.too_large = f"the model does not fit on one device: {reasons[0]}"
        others_s: list[float] = self._team.gather(tried.stepped_s)
        own_s = others_s.pop(self._team.rank)
        longest_s = max(others_s, default=0.0)
        return own_s + longest_s if goes_first else max(own_s, longest_s)

    def release(self) -> None:
        """Drop the models before their process group goes."""
        self.drop_anchor()
        if self._measured is not None:
            self._measured.release()
        self._measured = None

    def _try_alone(self, first_step: Callable[[StrategyModels], None]) -> _Tried:
        """Make the models and step the bare one, on this rank; not collective, and nothing is raised."""
        try:
            self._make()
            began = perf_counter()
            self._step_alone(first_step)
            return _Tried(perf_counter() - began)
        except CODE_FAILS as error:
            sharded = self._config.setting.strategy == "fsdp"
            if not (sharded and self._measured is not None and is_out_of_memory(error)):
                return _Tried(failure=error)
            too_large = describe(error)
            drop_frames(error)
            return _Tried(too_large=too_large)

    def _make(self) -> None:
        self._workload = build(self._config.workload, self._config.data, self._config.seed)
        if any(each.compile for each in self._settings):
            transforms.reset()
            self.compiled_before = self.num_compiled()
        self._measured = self._make_models(self._config)

    def _step_alone(self, first_step: Callable[[StrategyModels], None]) -> None:
        self.measured.activate()
        first_step(self.measured)
        self._device.synchronize()

    def _make_models(self, config: Configuration) -> StrategyModels:
        workload, team = self.workload, self._team
        check_model_fits(config, workload, team, self._cache)
        batches = make_batches(workload, config, config.batch_size, team.rank, self._device)
        self.epoch_samples = batches.epoch_samples
        batches_of_all = None
        if config.setting.strategy == "dp" and team.leads:
            one_rank = config.model_copy(update={"world_size": 1})
            batches_of_all = make_batches(workload, one_rank, config.samples_per_pass, 0, self._device)
        model = self._cache.model(workload, config.workload.model_dump_json(), config.seed)
        return StrategyModels(
            workload,
            model,
            config.optimizer,
            config.setting,
            batches,
            self._device,
            threads=config.cpus_per_worker,
            batches_of_all=batches_of_all,
        )
