"""The models of a trial on one rank: made, and stepped once alone before the first collective."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.worker.batches import make_batches
from raybench.worker.cache import Kept
from raybench.worker.communicators import Team
from raybench.worker.devices import probe as probing
from raybench.worker.failures import describe, is_out_of_memory
from raybench.worker.model_memory import refuse_without_room
from raybench.worker.strategies import compiling
from raybench.worker.strategies.models import Bench
from raybench.workloads import Workload, build


class TrialModels:
    """The model of a trial of steps or of a probe, and the one of the other setting in a confirmation."""

    def __init__(
        self,
        config: Configuration,
        team: Team,
        device: torch.device,
        kept: Kept,
        *,
        versus: Setting | None = None,
    ) -> None:
        self._config, self._team, self._device, self._kept = config, team, device, kept
        self._versus_setting = versus
        self._workload: Workload | None = None  # made with the models, where a failure is agreed on
        self._main: Bench | None = None
        self.versus: Bench | None = None
        self.epoch_samples: int | None = None  # of the training data set; None: synthetic input
        self.too_large: str | None = None  # why the model does not fit on one device; None: it does
        self.compiled_before = 0  # graphs of earlier trials

    @property
    def workload(self) -> Workload:
        """What is run, once it is set up."""
        assert self._workload is not None
        return self._workload

    @property
    def main(self) -> Bench:
        """The model that is measured, once it is set up."""
        assert self._main is not None
        return self._main

    @property
    def compiles(self) -> bool:
        """Whether anything is compiled."""
        versus = self._versus_setting
        return self._config.setting.compile or (versus is not None and versus.compile)

    def num_compiled(self) -> int:
        """Graphs compiled so far in this process; 0 where nothing is compiled."""
        return compiling.num_compiled() if self.compiles else 0

    def set_up(self, first_step: Callable[[Bench], None]) -> float:
        """Make the models; the seconds that ``first_step`` of the bare one took, on this rank alone.

        What fails here, on whichever rank, is agreed on before the first collective. FSDP trains what one
        device has no memory for: then ``too_large`` says so, and the trial goes on.
        """
        failure, too_large, stepped_s = None, None, 0.0
        sharded = self._config.setting.strategy == "fsdp"
        try:
            self._make()
            began = perf_counter()
            self._step_alone(first_step)
            stepped_s = perf_counter() - began
        except Exception as error:
            if sharded and self._main is not None and is_out_of_memory(error):
                too_large = describe(error)
            else:
                failure = error
        self._team.agree(failure)
        reasons = [reason for reason in self._team.gather(too_large) if reason] if sharded else []
        if reasons:
            self.too_large = f"the model does not fit on one device: {reasons[0]}"
        return stepped_s

    def release(self) -> None:
        """Drop the models before their process group goes."""
        for bench in (self._main, self.versus):
            if bench is not None:
                bench.release()
        self._main = self.versus = None

    def _make(self) -> None:
        self._workload = build(self._config.workload, self._config.data)
        if self.compiles:
            compiling.forget()
            self.compiled_before = self.num_compiled()
        self._main = self._make_bench(self._config)
        if self._versus_setting is not None:
            other = self._config.model_copy(update={"setting": self._versus_setting})
            self.versus = self._make_bench(other)

    def _step_alone(self, first_step: Callable[[Bench], None]) -> None:
        if self.versus is not None:
            self.versus.activate()
            self.versus.bare.step()
        self.main.activate()
        first_step(self.main)
        probing.synchronize(self._device)

    def _make_bench(self, config: Configuration) -> Bench:
        workload, team = self.workload, self._team
        refuse_without_room(config, workload, team, self._kept)
        batches = make_batches(workload, config, config.batch_size, team.rank, self._device)
        self.epoch_samples = batches.epoch_samples
        together = None
        if config.setting.strategy == "dp" and team.leads:
            one = config.model_copy(update={"world_size": 1})
            together = make_batches(workload, one, config.samples_per_pass, 0, self._device)
        model = self._kept.model(workload, config.workload.model_dump_json(), config.seed)
        return Bench(
            workload,
            model,
            config.optimizer,
            config.setting,
            batches,
            self._device,
            threads=config.cpus_per_worker,
            together=together,
        )
