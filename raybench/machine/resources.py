"""What a worker takes, and what there is for a study to run on: of this node, or of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raybench.spec.counted import counted

DeviceKind = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class WorkerNeeds:
    """What one worker takes of its node: cores, and on GPUs one GPU."""

    device: DeviceKind
    cpus: int

    def __str__(self) -> str:
        cores = counted(self.cpus, "core")
        return f"{cores} and a GPU" if self.device == "cuda" else cores


@dataclass(frozen=True)
class Resources:
    """What there is to run on."""

    device: DeviceKind
    num_devices: int  # cores over cores per worker, or GPUs
    device_name: str
    num_nodes: int = 1
