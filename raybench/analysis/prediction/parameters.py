"""The parameters of raybench's model, and what is believed of each before anything is measured.

Measurements on few devices say little of what many will add, above all of the latency that each further
participant brings. Each parameter is therefore given the order of magnitude that its physics has, as a normal
distribution of its logarithm (of its logit where it is a share), wide enough for what is in use. Two standard
deviations to each side of the middle reach:

- Latency of a hop within a node: 3 to 49 us. nccl-tests shows some us over NVLink and PCIe; gloo over
  loopback takes tens. Between nodes: 10 to 160 us. InfiniBand takes 2 to 5 us, TCP in data centres 20 to
  100, and each step of a collective adds the software's. The form, latency plus bytes over rate, is Hockney's
  (1994); for collectives Thakur, Rabenseifner, Gropp (2005), "Optimization of collective communication
  operations in MPICH". These two are narrow on purpose: where placements on few nodes differ for other
  reasons, a free latency takes them up, and grows with every further device.
- Rates: within a node 0.4 to 160 GB/s (host memory to NVLink), between nodes 0.1 to 40 GB/s.
- Messages in a step: 2 to 20. DDP's buckets take 25 MiB (Li et al. 2020, "PyTorch Distributed", VLDB 13).
- Spread of the devices' speeds, and of links': 0.6 to 15%. Devices of one kind differ by some percent
  (Sinha et al. 2022, "Not all GPUs are created equal", SC), links of clouds by as much.
- Share of a step behind which communication can hide: 31 to 83%. Backward takes about two thirds of the
  operations, and its first bucket has to fill first.

Gradient bytes and messages are not known to a point: what is fitted is bytes over rate and messages times
latency. A sweep of collectives measures rates and latencies, then the points are left to say bytes and
messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Belief:
    """A parameter's transformed value before measuring: a normal distribution's mean and deviation."""

    mean: float
    deviation: float


def _of_scale(center: float, deviation: float) -> Belief:
    return Belief(math.log(center), deviation)


def _of_share(center: float, deviation: float) -> Belief:
    return Belief(math.log(center / (1 - center)), deviation)


# the order is that of a vector of parameters
BELIEFS = {
    "fixed_share": _of_share(0.25, 1.5),  # of a step of the smallest batch: what does not grow with the batch
    "compute_scale": _of_scale(0.9, 1.0),  # one device's step at the smallest batch over the shortest step
    "contention": _of_scale(0.02, 1.0),  # relative, for each doubling of the devices at work on one node
    "device_spread": _of_scale(0.03, 0.8),  # relative standard deviation of the devices' speeds and jitter
    "local_latency_s": _of_scale(12e-6, 0.7),
    "far_latency_s": _of_scale(40e-6, 0.7),
    "local_s_per_byte": _of_scale(1 / 8e9, 1.5),
    "far_s_per_byte": _of_scale(1 / 2e9, 1.5),
    "sharing": _of_share(0.5, 1.2),  # 0: every pair on a node has a link of its own, 1: all share one
    "gradient_bytes": _of_scale(100e6, 1.5),
    "messages": _of_scale(6.0, 0.6),  # in a step
    "two_nodes": Belief(0.0, 0.4),  # logarithm: all traffic of two nodes goes between one pair
    "link_spread": _of_scale(0.04, 0.8),
    "hidden_share": _of_share(0.6, 0.6),  # of compute, behind which communication can hide
    "sharpness": _of_scale(1.5, 0.7),  # exponent - 1 of the norm that joins backward and communication
    # of the variants "shared" and "adaptdl": for each further device, of compute or of transfers
    "serial_share": _of_scale(0.003, 1.5),
    "step_cost": _of_scale(2.0, 1.5),  # of the variant "stepwise": over the latency of a hop
}
NAMES = tuple(BELIEFS)
INDEX = {name: index for index, name in enumerate(NAMES)}
MEANS: Floats = np.array([each.mean for each in BELIEFS.values()])
DEVIATIONS: Floats = np.array([each.deviation for each in BELIEFS.values()])
