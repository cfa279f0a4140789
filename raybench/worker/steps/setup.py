"""The models of a trial on one rank: made, and stepped once alone before the first collective."""

from __future__ import annotations

from collections.abc import Callable

import torch

from raybench.errors import CODE_FAILS
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.worker.batches import make_batches
from raybench.worker.communicators import default_group
from raybench.worker.failures import describe, drop_frames, is_out_of_memory
from raybench.worker.group_cache import RankContext
from raybench.worker.memory import check_model_fits
from raybench.worker.strategies import transforms
from raybench.worker.strategies.models import StrategyModels
from raybench.workloads import Workload, build


class TrialModels:
    """The model of a trial of steps or of a probe, and of its anchor, once that is made."""

    def __init__(
        self,
        config: Configuration,
        context: RankContext,
        first_step: Callable[[StrategyModels], None],
        anchor: Setting | None = None,
    ) -> None:
        """Make the models, with ``first_step`` of the bare one. A collective call.

        What fails here, on whichever rank, is agreed on before the first collective. A workload that the
        leader has not stepped yet it steps while the others sleep: what fails on every rank costs the time
        and memory of one rank. FSDP trains what one device has no memory for: then ``too_large`` says so, and
        the trial goes on.
        """
        self._config, self._context, self._device, team = config, context, context.device, context.team
        self._anchor_setting = anchor
        self._settings = [each for each in (config.setting, anchor) if each is not None]
        self.anchor: StrategyModels | None = None
        self.epoch_samples: int | None = None  # of the training data set; None: synthetic input
        workload, stepped = config.workload.model_dump_json(), context.cache.stepped
        goes_first = team.leads and workload not in stepped
        first = team.agreed(lambda: self._step_alone(first_step) if goes_first else None)
        later = team.agreed(lambda: None if goes_first else self._step_alone(first_step))
        stepped.add(workload)
        why = next(filter(None, team.gather(first or later)), None)
        # None: it does
        self.too_large = None if why is None else f"the model does not fit on one device: {why}"

    def num_compiled(self) -> int:
        """Graphs compiled so far in this trial; 0 where nothing is compiled."""
        return transforms.num_compiled() if any(each.compile for each in self._settings) else 0

    def make_anchor(self) -> StrategyModels:
        """The models of the other setting, next to those that are measured, stepped once alone.

        Under DDP with as much memory to spare as its buckets take. Not a collective call.
        """
        assert self._anchor_setting is not None
        other = self._config.model_copy(update={"setting": self._anchor_setting})
        models = self.anchor = self._make_models(other, self.measured.workload)
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

    def release(self) -> None:
        """Drop the models before their process group goes."""
        self.drop_anchor()
        self.measured.release()

    @default_group(None)
    def _step_alone(self, first_step: Callable[[StrategyModels], None]) -> str | None:
        """Make the models and step the bare one, on this rank alone; why FSDP's does not fit there."""
        workload = build(self._config.workload, self._config.data, self._config.seed)
        if any(each.compile for each in self._settings):
            transforms.reset()
        models = self.measured = self._make_models(self._config, workload)
        try:
            models.activate()
            first_step(models)
            self._device.synchronize()
        except CODE_FAILS as error:
            if not (models.is_sharded and is_out_of_memory(error)):
                raise
            drop_frames(error)
            return describe(error)
        return None

    @default_group(None)
    def _make_models(self, config: Configuration, workload: Workload) -> StrategyModels:
        team = self._context.team
        check_model_fits(config, workload, self._context)
        batches = make_batches(workload, config, config.batch_size, team.rank, self._device)
        self.epoch_samples = batches.epoch_samples
        batches_of_all = None
        if config.setting.strategy == "dp" and team.leads:
            one_rank = config.model_copy(update={"world_size": 1})
            batches_of_all = make_batches(workload, one_rank, config.samples_per_pass, 0, self._device)
        model = self._context.cache.model(workload, config)
        return StrategyModels(config, workload, model, batches, self._device, batches_of_all=batches_of_all)
