"""The model as each variant runs it: bare, under its strategy, and under DDP without transfers.

Under DDP the bare model and the twin without transfers share the parameters' storage with the real one, and
the optimizer's state with it, so that a variant costs the memory of its gradients only. FSDP's parameters
are sharded tensors of their own: there the bare model is a copy, made when it is asked for and dropped while
the real one is made, so that the real one's peak of memory can be read without it.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from raybench.spec.knobs import Setting
from raybench.spec.study import OptimizerSpec
from raybench.worker.batches import Batches
from raybench.worker.communicators import Team
from raybench.worker.strategies.compiling import compile_module
from raybench.worker.strategies.data_parallel import device_ids
from raybench.worker.strategies.hooks import Hook, compression_hook, no_transfer
from raybench.worker.strategies.repeated_blocks import checkpoint_blocks
from raybench.worker.strategies.sharding import let_go, shard
from raybench.worker.strategies.stepper import Lane, make_optimizer, sample_weight, share_state
from raybench.workloads.protocol import Workload

__all__ = ["Bench", "Lane", "make_optimizer", "sample_weight", "share_state"]

# torch 2.14 gave DDP's argument a new name
_RENAMED = "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
SYNC_BUFFERS = "forward_sync_buffers" if _RENAMED else "broadcast_buffers"


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
        together: Batches | None = None,
    ) -> None:
        """``together``: dp's batches, those of all ranks at once, on the leader.

        Raises ``InvalidTrialError`` where the model lacks what the setting needs.
        """
        self._workload, self._spec, self.setting = workload, optimizer, setting
        self._batches, self._device, self._threads = batches, device, threads
        layout = torch.channels_last if setting.channels_last else torch.preserve_format
        self._together = together
        if setting.activation_checkpointing:
            checkpoint_blocks(model)
        # FSDP shards from the CPU: the whole model need not fit on a device
        self._model = (model if self.shards else model.to(device)).to(memory_format=layout)
        self._model.train()
        self.devices: list[int] = []  # that dp drives from this process
        self._bare: Lane | None = None
        self.real: Lane | None = None
        self.local: Lane | None = None
        self.hook: Hook | None = None  # of the real lane; None: DDP's own all-reduce
        self.hook_state: Any = None

    @property
    def device(self) -> torch.device:
        """This rank's."""
        return self._device

    @property
    def shards(self) -> bool:
        """Whether the real model is sharded: then the bare one is a copy with weights of its own."""
        return self.setting.strategy == "fsdp"

    @property
    def batches(self) -> Batches:
        """This rank's own."""
        return self._batches

    def drop_bare(self) -> None:
        """Give back the memory of the bare model, which is made anew when it is asked for."""
        self._bare = None

    @property
    def bare(self) -> Lane:
        """The model without its strategy, on this rank's device alone."""
        if self._bare is None:
            module = self.whole_copy() if self.shards else self._shadow()
            if self.setting.compile:
                compile_module(module)
            self._bare = self._lane(module, self._batches)
        return self._bare

    def whole_copy(self) -> nn.Module:
        """The model as it was handed over, again, on this rank's device, neither sharded nor compiled."""
        return self._copy().to(self._device)

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
        """The real thing on the team's data group. A collective call.

        Raises ``InvalidTrialError`` on every rank where the strategy cannot be had on these devices.
        """
        wraps = {"single": self._alone, "dp": self._wrap_dp, "ddp": self._wrap_ddp, "fsdp": self._wrap_fsdp}
        self.real = wraps[self.setting.strategy](team)
        return self.real

    def _alone(self, team: Team) -> Lane:
        assert team.size == 1, "single has one device"
        return self.bare

    def _wrap_ddp(self, team: Team) -> Lane:
        bare = self.bare
        if self.setting.compile:
            compile_module(self._model)
        module = self._ddp(self._model, team, sync_buffers=self.setting.broadcast_buffers)
        self.hook, self.hook_state = self._communication_hook(team)
        if self.hook is not None:
            module.register_comm_hook(self.hook_state, self.hook)
        real = self._lane(module, self._batches)
        share_state(bare.optimizer, real.optimizer)
        return real

    def _wrap_dp(self, team: Team) -> Lane:
        """On the leader DataParallel over the team's devices; the others' lane is bare, and not to run."""
        devices = device_ids(team, self._device)
        if not team.leads:
            return self.bare
        assert self._together is not None
        self.devices = devices
        return self._lane(DataParallel(self._model, devices, self._device), self._together)

    def _wrap_fsdp(self, team: Team) -> Lane:
        self._bare = None
        module = self._copy()
        autocast = shard(module, team, self.setting, self._device)
        return self._lane(module, self._batches, autocast=autocast)

    def twin(self, team: Team) -> Lane:
        """DDP with a hook that sends nothing, on the same weights. A collective call."""
        shadow = self._shadow()
        if self.setting.compile:
            compile_module(shadow)
        module = self._ddp(shadow, team, sync_buffers=False)
        module.register_comm_hook(None, no_transfer)
        self.local = self._lane(module, self._batches)
        share_state(self.bare.optimizer, self.local.optimizer)
        return self.local

    def release(self) -> None:
        """Drop the wrappers: a reducer that outlives its process group aborts the process at its end."""
        if self.shards and self.real is not None:
            let_go(self.real.module)
        self._bare = self.real = self.local = None

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

    def _lane(self, module: nn.Module, batches: Batches, *, autocast: bool = True) -> Lane:
        made = make_optimizer(self._workload, self._spec, module)
        return Lane(module, made, self._workload, batches, self.setting, self._device, autocast=autocast)

    def _copy(self) -> nn.Module:
        """The same module again, with weights of its own."""
        try:
            return copy.deepcopy(self._model)
        except Exception:  # as in _shadow
            made = self._made_again()
            made.load_state_dict(self._model.state_dict())
            return made

    def _made_again(self) -> nn.Module:
        made = self._workload.model()
        if self.setting.activation_checkpointing:
            checkpoint_blocks(made)
        return made.train()

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
            shadow = self._made_again().to(self._device)
            mine = (*self._model.parameters(), *self._model.buffers())
            theirs = (*shadow.parameters(), *shadow.buffers())
            for one, other in zip(mine, theirs, strict=True):
                other.data = one.data
        return shadow
