"""The model of a setting as each variant runs it: bare, under its strategy, and the same without transfers.

Under DDP the bare model and the twin without transfers share the parameters' storage with the wrapped one,
and the optimizer's state with it, so that a variant costs the memory of its gradients only. FSDP's
parameters are sharded tensors of their own: there the bare model is a copy, made when it is needed and
dropped while the sharded one is made, so that the latter's peak of memory can be read without it. Its twin is
the sharded module itself, with its collectives left out.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.distributed import ProcessGroup as Group
from torch.nn.parallel import DataParallel

from raybench.errors import InvalidTrialError
from raybench.machine.host import host_id
from raybench.records.requests import Configuration
from raybench.spec.knobs import Setting
from raybench.spec.study import OptimizerSpec
from raybench.worker.batches import Batches
from raybench.worker.communicators import Team, default_group
from raybench.worker.devices.cuda import gpu_uuid
from raybench.worker.devices.device import Device
from raybench.worker.strategies import ddp
from raybench.worker.strategies.sharding import Collectives, release_group, shard
from raybench.worker.strategies.stepper import Stepper, unwrapped
from raybench.worker.strategies.transforms import checkpointed, compiled
from raybench.workloads.protocol import Workload, optimizer_of


class StrategyModels:
    """The model of one setting on one rank: under its strategy, and its bare copy."""

    def __init__(
        self,
        config: Configuration,
        workload: Workload,
        model: nn.Module,
        batches: Batches,
        device: Device,
        *,
        batches_of_all: Batches | None = None,
    ) -> None:
        """``batches_of_all``: dp's, those of all ranks at once, on the leader.

        Raises ``InvalidTrialError`` where the model lacks what the setting needs.
        """
        self.workload, self._optimizer, self.setting = workload, config.optimizer, config.setting
        self.batches, self._batches_of_all = batches, batches_of_all
        self.device, self._threads, setting = device, config.cpus_per_worker, config.setting
        self.is_sharded = setting.strategy == "fsdp"  # then the bare model has weights of its own
        # FSDP shards from the CPU: the whole model need not fit on a device
        self.copies = CopiedModel(workload, model, setting, None if self.is_sharded else device.torch_device)
        self._bare: Stepper | None = None
        self.wrapped: Stepper | None = None  # under the strategy
        self.twin: Stepper | None = None  # without transfers; FSDP's while its collectives are left out
        self.collectives: Collectives | None = None  # FSDP's
        self.twin_hook = ddp.HookSwitch()  # what it sends
        self.communication = ddp.Communication()  # of the wrapped model under DDP
        self.dp_devices: list[int] = []  # that dp drives from this process

    def activate(self) -> None:
        """Set what holds for the whole process: threads, tf32, cuDNN's search."""
        self.device.activate(self.setting, self._threads)

    @property
    def bare(self) -> Stepper:
        """The model without its strategy, on this rank's device alone."""
        if self._bare is None:
            copies, on = self.copies, self.device.torch_device
            if self.is_sharded:  # the model as it was handed over, again, on this rank's device
                module = copies.in_layout(copies.with_own_weights().to(on))
            else:
                module = copies.sharing_storage()
            self._bare = self.stepper(compiled(module, self.setting), self.batches)
        return self._bare

    def drop_bare(self) -> None:
        """Give back the memory of the bare model, which is made again when it is needed."""
        self._bare = None

    def wrap(self, team: Team) -> Stepper:
        """Put the model under its strategy, on the team's data group. A collective call.

        Raises ``InvalidTrialError`` on every rank where the strategy cannot be had on these devices.
        """
        wraps = {"single": lambda team: self.bare, "dp": self._dp, "ddp": self._ddp, "fsdp": self._fsdp}
        self.wrapped = wraps[self.setting.strategy](team)
        return self.wrapped

    def measured_stepper(self, team: Team) -> Stepper | None:
        """What is measured, under the strategy if there is one; None where dp's leader drives this rank."""
        if self.wrapped is None:
            return self.bare
        return self.wrapped if team.leads or self.setting.strategy != "dp" else None

    def renew_optimizers(self) -> None:
        """As they were made, and without the twin: the memory of what they keep of their steps is given back.

        For when all variants have run: from here on one of them alone is stepped.
        """
        self.twin, kernels = None, self.setting.optimizer_kernels
        for each in filter(None, (self._bare, self.wrapped)):
            each.optimizer = make_optimizer(self.workload, self._optimizer, each.module, kernels, each.group)

    def make_twin(self, team: Team) -> Stepper:
        """DDP with a hook that sends nothing, on the same weights; FSDP itself. A collective call."""
        if self.is_sharded:
            assert self.wrapped is not None
            self.twin = self.wrapped.on(self.batches)  # nothing is sent, by the forward pass either
            return self.twin
        module = compiled(self.copies.sharing_storage(), self.setting)
        wrapper = ddp.wrap(module, team, self.setting, self.device, self.twin_hook)
        self.twin = self.stepper(wrapper, self.batches)  # nothing is sent, by the forward pass either
        share_state(self.bare.optimizer, self.twin.optimizer)
        return self.twin

    def release(self) -> None:
        """Drop the wrappers: a reducer that outlives its process group aborts the process at its end."""
        if self.is_sharded and self.wrapped is not None:
            release_group(self.wrapped.module)
        self._bare = self.wrapped = self.twin = self.collectives = None

    def _ddp(self, team: Team) -> Stepper:
        bare = self.bare  # copied before the model is compiled in place
        wrapper = ddp.wrap(compiled(self.copies.model, self.setting), team, self.setting, self.device)
        self.communication = ddp.set_communication(wrapper, self.workload, self.setting, team)
        wrapped = self.stepper(wrapper, self.batches, team)
        share_state(bare.optimizer, wrapped.optimizer)
        return wrapped

    def _dp(self, team: Team) -> Stepper:
        """On the leader DataParallel over the team's devices; the others' is bare, and not to be stepped."""
        devices, device = device_ids(team, self.device), self.device.torch_device
        bare = self.bare
        if not team.leads:
            return bare
        assert self._batches_of_all is not None
        self.dp_devices = devices
        wrapped = self.stepper(DataParallel(self.copies.model, devices, device), self._batches_of_all)
        share_state(bare.optimizer, wrapped.optimizer)
        return wrapped

    def _fsdp(self, team: Team) -> Stepper:
        self.drop_bare()
        module = self.copies.with_own_weights()
        autocast = shard(module, team, self.setting, self.device.torch_device)
        self.collectives = Collectives(module)
        return self.stepper(module, self.batches, team, autocast=autocast)

    def stepper(
        self,
        module: nn.Module,
        batches: Batches,
        team: Team | None = None,
        *,
        autocast: bool = True,
        setting: Setting | None = None,
    ) -> Stepper:
        """``team``: with whom its step may communicate; ``setting``: another one than that of the models."""
        setting, device = setting or self.setting, self.device.torch_device
        group = team.data if team is not None else None
        optimizer = make_optimizer(self.workload, self._optimizer, module, setting.optimizer_kernels, group)
        return Stepper(
            module, optimizer, self.workload, batches, setting, device, group=group, autocast=autocast
        )


class CopiedModel:
    """A model as its setting wants it, and further copies of it."""

    def __init__(
        self, workload: Workload, model: nn.Module, setting: Setting, device: torch.device | None
    ) -> None:
        """``device``: where the model is moved to; None: it stays where it is, for FSDP to shard.

        FSDP refuses weights that are not contiguous, so there ``channels_last`` is the inputs' alone: torch's
        convolutions take their layout, and bring the weights into it in each call.

        Raises ``InvalidTrialError`` where the model lacks what the setting needs.
        """
        self._workload, self._setting, self._device = workload, setting, device
        model = checkpointed(model, setting)
        self.model = model if device is None else self.in_layout(model.to(device))
        self.model.train()

    @property
    def gradient_bytes(self) -> int:
        """Of a whole set of gradients."""
        return sum(tensor.nbytes for tensor in self.model.parameters() if tensor.requires_grad)

    def in_layout(self, model: nn.Module) -> nn.Module:
        """``model`` with its weights in the setting's memory format."""
        layout = torch.channels_last if self._setting.channels_last else torch.preserve_format
        return model.to(memory_format=layout)

    def with_own_weights(self) -> nn.Module:
        """The same module again, with weights of its own."""
        try:
            return copy.deepcopy(self.model)
        except Exception:  # a module that cannot be copied is built again
            again = self._build_again()
            again.load_state_dict(self.model.state_dict())
            return again

    def sharing_storage(self) -> nn.Module:
        """The same module again, its parameters and buffers on the same storage, its gradients its own."""
        memo: dict[int, Any] = {}
        for parameter in self.model.parameters():
            memo[id(parameter)] = nn.Parameter(parameter.detach(), parameter.requires_grad)
        for buffer in self.model.buffers():
            memo[id(buffer)] = buffer
        try:
            shared: nn.Module = copy.deepcopy(self.model, memo)
        except Exception:  # a module that cannot be copied is built again and put on the same storage
            shared = self._build_again().to(self._device)
            tensors = (*self.model.parameters(), *self.model.buffers())
            for tensor, other in zip(tensors, (*shared.parameters(), *shared.buffers()), strict=True):
                other.data = tensor.data
        return shared

    @default_group(None)
    def _build_again(self) -> nn.Module:
        return checkpointed(self._workload.model(), self._setting).train()


def make_optimizer(
    workload: Workload, spec: OptimizerSpec, module: nn.Module, kernels: str, group: Group | None
) -> torch.optim.Optimizer:
    """The workload's own optimizer, or the study's, that updates as the knob ``optimizer_kernels`` says.

    ``group``: with whom it may communicate, as one may that shards its state; None: with nobody.
    """
    with default_group(group):
        optimizer = optimizer_of(workload, unwrapped(module)) or _optimizer_of_study(spec, module)
    set_kernels(optimizer, kernels)
    return optimizer


def _optimizer_of_study(spec: OptimizerSpec, module: nn.Module) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    rate, decay = spec.learning_rate, spec.weight_decay
    if spec.name == "sgd":
        return torch.optim.SGD(parameters, rate, momentum=spec.momentum, weight_decay=decay)
    kind = torch.optim.Adam if spec.name == "adam" else torch.optim.AdamW
    return kind(parameters, rate, weight_decay=decay)


def set_kernels(optimizer: torch.optim.Optimizer, kernels: str) -> None:
    """Have it update as the knob ``optimizer_kernels`` says, as if it had been made so.

    But for fp16's scaling, which a fused optimizer that was made so does itself: then it is called for steps
    that are left out too, and nobody knows which they were.

    Raises ``InvalidTrialError`` where it cannot.
    """
    if kernels == "default":
        return
    for group in optimizer.param_groups:
        if kernels not in group:
            raise InvalidTrialError(f"optimizer_kernels {kernels}: {type(optimizer).__name__} has none")
        group.update({name: name == kernels for name in ("foreach", "fused") if name in group})
    # else GradScaler would hand it what another kernel does not take
    vars(optimizer).pop("_step_supports_amp_scaling", None)


def share_state(source: torch.optim.Optimizer, target: torch.optim.Optimizer) -> None:
    """Let ``target`` update the same state tensors as ``source``, parameter by parameter."""
    groups = zip(source.param_groups, target.param_groups, strict=True)
    for source_group, target_group in groups:
        for parameter, other in zip(source_group["params"], target_group["params"], strict=True):
            target.state[other] = source.state[parameter]


def device_ids(team: Team, device: Device) -> list[int]:
    """The team's GPUs as the leader numbers them. A collective call on the control group.

    Raises ``InvalidTrialError`` where one process cannot drive them all.
    """
    if device.kind != "cuda":
        raise InvalidTrialError("strategy dp exists on GPUs only")
    places: list[tuple[str, str]] = team.gather((host_id(), gpu_uuid(device.torch_device)))
    if len({host for host, _ in places}) > 1:
        raise InvalidTrialError("strategy dp: one process drives all devices, so none may be on another node")
    seen = {gpu_uuid(index): index for index in range(torch.cuda.device_count())}
    indices = team.from_leader([seen[uuid] for _, uuid in places if uuid in seen])
    if len(indices) < team.size:
        raise InvalidTrialError("strategy dp: the leader's process does not see every device of the team")
    return indices
