"""What Ray Train's own processes are handed of a run on CPUs, where the workers alone need torch.

Ray's ``TorchConfig`` brings torch wherever it is unpickled, and so do a train function pickled by its module
and a version of torch's: into Train's controller and its state actor, 1 to 2 s of a core each.
"""

from __future__ import annotations

import copyreg
import os
from datetime import timedelta
from typing import Any

import ray
import ray.train
from ray.train.backend import Backend, BackendConfig

GROUP_TIMEOUT_S = 1800  # Ray's own, of the group that all workers are born into
LEAVE_S, LEAVE_LIMIT = 30.0, "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S"  # Ray's own


class GlooConfig(BackendConfig):  # type: ignore[misc]
    """Process groups as Ray's ``TorchConfig(backend="gloo")`` makes them."""

    backend = "gloo"  # ``TorchTrainer`` asks

    @property
    def backend_cls(self) -> type[Backend]:
        """What the controller calls."""
        return GlooBackend

    @property
    def framework(self) -> str:
        """For Train's page in Ray's dashboard."""
        return "torch"

    def to_dict(self) -> dict[str, Any]:
        """For the same page."""
        return {"backend": "gloo", "init_method": "env", "timeout_s": GROUP_TIMEOUT_S}


class GlooBackend(Backend):  # type: ignore[misc]
    """Called in the controller; the workers do the work."""

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """Make the group of all workers."""
        worker_group.execute(_join, *worker_group.execute_single(0, _meeting_point))

    def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """Leave it; a worker that is busy is not waited for."""
        leaving = worker_group.execute_async(_leave)
        ray.wait(leaving, num_returns=len(leaving), timeout=float(os.environ.get(LEAVE_LIMIT, LEAVE_S)))


def serve(config: dict[str, Any]) -> None:
    """The train function, on GPUs too; its module is imported where it runs."""
    from raybench.worker import serve

    serve.serve(config)


def _meeting_point() -> tuple[str, int]:
    """The address of this worker, and a port that is free."""
    from raybench.machine.host import free_port

    address = ray.util.get_node_ip_address()
    return address, free_port(address)


def _join(address: str, port: int) -> None:
    """Meet the other workers there, with the variables that torchrun sets: other code may ask for them."""
    import torch.distributed as dist

    send_version_as_text()
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    os.environ |= {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(context.get_local_rank()),
        "LOCAL_WORLD_SIZE": str(context.get_local_world_size()),
        "NODE_RANK": str(context.get_node_rank()),
        "ACCELERATE_TORCH_DEVICE": "cpu",
    }
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=timedelta(seconds=GROUP_TIMEOUT_S))


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized() and dist.get_world_size() > 1:  # Ray does not for one
        dist.destroy_process_group()


def send_version_as_text() -> None:
    """Make torch's version a plain text wherever this process sends it.

    The controller asks a worker for it, and hands it to its state actor: both would import torch to read it.
    """
    from torch.torch_version import TorchVersion

    copyreg.pickle(TorchVersion, lambda version: (str, (str(version),)))  # type: ignore[arg-type, return-value]
