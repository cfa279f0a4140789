"""What a study may run on: of this node, or of a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Resources:
    """What there is to run on."""

    device: str  # "cpu" or "cuda"
    num_devices: int  # cores over cores per worker, or GPUs
    device_name: str
    num_nodes: int = 1
