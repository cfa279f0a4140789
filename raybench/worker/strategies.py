"""The model as each variant runs it: bare, under DDP, and under DDP without transfers.

The bare model and the twin without transfers share the parameters' storage with the real one, and the
optimizer's state with it, so that a variant costs the memory of its gradients only.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from raybench.record import Phase
from raybench.spec.knobs import Setting
from raybench.spec.study import OptimizerSpec
from raybench.worker.batches import Batches
from raybench.worker.communication import Hook, Team, compression_hook, no_transfer
from raybench.workloads.protocol import Workload, optimizer_of

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
# torch 2.14 gave DDP's argument a new name
_RENAMED = "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
SYNC_BUFFERS = "forward_sync_buffers" if _RENAMED else "broadcast_buffers"
Mark = Callable[[Phase], None]


class Lane:
    """One way to run a training step: a module, its optimizer, and where its batches come from."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        workload: Workload,
        batches: Batches,
        setting: Setting,
        device: torch.device,
    ) -> None:
        self.module, self.optimizer, self.batches = module, optimizer, batches
        self.loss: torch.Tensor | None = None  # of the last micro-batch, on the device
        # of a training trial: sees each micro-batch after its forward pass, and says what its loss weighs
        self.judge: Callable[[torch.Tensor, Any], torch.Tensor] | None = None
        self._workload, self._setting, self._device = workload, setting, device
        self._scaler = torch.amp.GradScaler(device.type, enabled=setting.precision == "fp16")
        # a static graph is learnt in the first step, and DDP asserts where its first backward pass is quiet
        self._may_be_quiet = not setting.static_graph

    def step(self, mark: Mark | None = None) -> None:
        """One optimizer step of ``gradient_accumulation`` micro-batches.

        ``mark`` is called after each phase; the timed blocks go without it.
        """
        accumulation = self._setting.gradient_accumulation
        for micro_batch in range(accumulation):
            batch = self.batches.next()
            if mark:
                mark("data")
            wrapped = isinstance(self.module, DistributedDataParallel)
            quiet = wrapped and self._may_be_quiet and micro_batch < accumulation - 1
            with self.module.no_sync() if quiet else nullcontext():  # type: ignore[operator]
                with self._autocast():
                    loss = self._workload.loss(self.module, batch)
                if mark:
                    mark("forward")
                scaled: torch.Tensor = self._scaler.scale(self._weighed(loss, batch))
                scaled.backward()  # type: ignore[no-untyped-call]
            if mark:
                mark("backward")
        self._scaler.step(self.optimizer)
        self._scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if mark:
            mark("optimizer")
        self.loss = loss.detach()
        self._may_be_quiet = True

    def _weighed(self, loss: torch.Tensor, batch: Any) -> torch.Tensor:
        if self.judge is not None:
            return self.judge(loss, batch)
        accumulation = self._setting.gradient_accumulation
        return loss / accumulation if accumulation > 1 else loss

    @property
    def scaler(self) -> torch.amp.GradScaler:
        """What keeps fp16 gradients from vanishing; switched off at other precisions."""
        return self._scaler

    def settle(self, batch: Any) -> None:
        """A forward and a backward pass without a step: DDP orders its buckets by the first one."""
        with self._autocast():
            loss = self._workload.loss(self.module, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.zero_grad(set_to_none=True)
        self._may_be_quiet = True

    def _autocast(self) -> Any:
        kind = AUTOCAST.get(self._setting.precision)
        return torch.autocast(self._device.type, dtype=kind) if kind else nullcontext()

    def tensors(self) -> list[torch.Tensor]:
        """Weights, buffers and optimizer state: what has to be the same on all ranks."""
        state = [
            value
            for values in self.optimizer.state.values()
            for value in values.values()
            if isinstance(value, torch.Tensor) and value.device.type == self._device.type
        ]
        # .data: a broadcast in place into a leaf that requires a gradient
        return [tensor.data for tensor in (*self.module.parameters(), *self.module.buffers(), *state)]


class Bench:
    """The lanes of one setting on one rank."""

    def __init__(
        self,
        workload: Workload,
        model: nn.Module,
        optimizer: OptimizerSpec,
        setting: Setting,
        batches: Batches,
        device: torch.device,
        *,
        threads: int,
    ) -> None:
        self._workload, self._spec, self.setting = workload, optimizer, setting
        self._batches, self._device, self._threads = batches, device, threads
        layout = torch.channels_last if setting.channels_last else torch.preserve_format
        self._model = model.to(device).to(memory_format=layout)
        self._model.train()
        self.bare = self._lane(self._shadow(), batches)
        self.real: Lane | None = None
        self.local: Lane | None = None
        self.hook: Hook | None = None  # of the real lane; None: DDP's own all-reduce
        self.hook_state: Any = None

    def activate(self) -> None:
        """Set what holds for the whole process: threads, tf32, cuDNN's search."""
        if self._device.type == "cpu":
            threads = self.setting.num_threads or self._threads
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            return
        tf32 = self.setting.precision == "tf32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = self.setting.cudnn_benchmark

    def with_batches(self, batches: Batches) -> Lane:
        """The bare lane at another batch size, on the same weights."""
        return Lane(
            self.bare.module, self.bare.optimizer, self._workload, batches, self.setting, self._device
        )

    def wrap(self, team: Team) -> Lane:
        """The real thing: DDP on the data group. A collective call."""
        module = self._ddp(self._model, team, sync_buffers=self.setting.broadcast_buffers)
        self.hook, self.hook_state = self._communication_hook(team)
        if self.hook is not None:
            module.register_comm_hook(self.hook_state, self.hook)
        self.real = self._lane(module, self._batches)
        share_state(self.bare.optimizer, self.real.optimizer)
        return self.real

    def twin(self, team: Team) -> Lane:
        """DDP with a hook that sends nothing, on the same weights. A collective call."""
        module = self._ddp(self._shadow(), team, sync_buffers=False)
        module.register_comm_hook(None, no_transfer)
        self.local = self._lane(module, self._batches)
        share_state(self.bare.optimizer, self.local.optimizer)
        return self.local

    def release(self) -> None:
        """Drop the wrappers: a reducer that outlives its process group aborts the process at its end."""
        self.real = self.local = None

    def _communication_hook(self, team: Team) -> tuple[Hook | None, Any]:
        own = getattr(self._workload, "communication_hook", None)
        if own is not None:
            state, hook = own(team.data)
            return hook, state
        return compression_hook(self.setting.gradient_compression), team.data

    def _ddp(self, module: nn.Module, team: Team, *, sync_buffers: bool) -> DistributedDataParallel:
        setting = self.setting
        cap = None if setting.bucket_cap_mb == "default" else setting.bucket_cap_mb
        return DistributedDataParallel(
            module,
            device_ids=[self._device] if self._device.type == "cuda" else None,
            process_group=team.data,
            bucket_cap_mb=cap,
            static_graph=setting.static_graph,
            find_unused_parameters=setting.find_unused_parameters,
            gradient_as_bucket_view=setting.gradient_as_bucket_view,
            **{SYNC_BUFFERS: sync_buffers},  # type: ignore[arg-type]
        )

    def _lane(self, module: nn.Module, batches: Batches) -> Lane:
        made = make_optimizer(self._workload, self._spec, module)
        return Lane(module, made, self._workload, batches, self.setting, self._device)

    def _shadow(self) -> nn.Module:
        """The same module again, its parameters and buffers on the same storage."""
        memo: dict[int, Any] = {}
        for parameter in self._model.parameters():
            memo[id(parameter)] = nn.Parameter(parameter.detach(), parameter.requires_grad)
        for buffer in self._model.buffers():
            memo[id(buffer)] = buffer
        try:
            shadow: nn.Module = copy.deepcopy(self._model, memo)
        except Exception:  # a module that cannot be copied is built again and put on the same storage
            shadow = self._workload.model().to(self._device)
            mine = (*self._model.parameters(), *self._model.buffers())
            theirs = (*shadow.parameters(), *shadow.buffers())
            for one, other in zip(mine, theirs, strict=True):
                other.data = one.data
            shadow.train()
        return shadow


def make_optimizer(workload: Workload, spec: OptimizerSpec, module: nn.Module) -> torch.optim.Optimizer:
    """The workload's own optimizer, or the study's."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    own = optimizer_of(workload, parameters)
    if own is not None:
        return own
    rate, decay = spec.learning_rate, spec.weight_decay
    if spec.name == "sgd":
        return torch.optim.SGD(parameters, rate, momentum=spec.momentum, weight_decay=decay)
    kind = torch.optim.Adam if spec.name == "adam" else torch.optim.AdamW
    return kind(parameters, rate, weight_decay=decay)


def share_state(source: torch.optim.Optimizer, target: torch.optim.Optimizer) -> None:
    """Let ``target`` update the same state tensors as ``source``, parameter by parameter."""
    pairs = zip(source.param_groups, target.param_groups, strict=True)
    for mine, theirs in pairs:
        for one, other in zip(mine["params"], theirs["params"], strict=True):
            target.state[other] = source.state[one]
