"""raybench's model of a step of data-parallel training.

A step of n devices on m nodes, at most w on one, lasts

    T = (1 - h) C + ((h C)^p + M^p)^(1/p)

with C the compute of the slowest device and M the communication: of C the share h can run while gradients travel.
p joins the two: 1 lets nothing overlap, infinity hides all that fits (AdaptDL, OSDI 2021, has h = 1). So what
is exposed of M falls when compute grows, and never below nothing.

    C = (fixed + batch * each) * (1 + spread * z(n)) * w^contention      z(n): the largest of n standard normals
    M = bytes * R + messages * L                                        each times (1 + link spread * z(m))

R (s per byte) and L (s) are those of one all-reduce:

- ring through all devices (Patarasuk and Yuan 2009): R = 2 (n-1)/n (far + local * hops^sharing),
  L = 2 (n-1)/n (far hops * far latency + local hops * local latency);
- tree (Sanders, Speck, Traeff 2009, NCCL's second algorithm): the same rates, L grows with log2 of the nodes;
- hierarchical: rings within nodes and one between them, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from raybench.analysis.prediction.parameters import INDEX
from raybench.analysis.prediction.places import Places, expected_maximum

Floats = NDArray[np.float64]
Algorithm = Literal["ring", "tree", "hierarchical"]
BUCKET_BYTES = 25 * 2**20  # DDP's, after a first one of 1 MiB; one more message for buffers
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


@dataclass(frozen=True)
class Units:
    """What times and batches are counted in, so that a study of microseconds is fitted as one of minutes."""

    step_s: float
    batch: float


@dataclass(frozen=True)
class Parts:
    """Logarithms of the parts of a step, each of shape ``(rows,)``, and how the step depends on them."""

    log_one_device: Floats  # compute of one device alone
    log_compute: Floats  # of the slowest of all
    log_communication: Floats  # -inf on one device
    log_step: Floats
    by_compute: Floats  # derivative of log_step; that by log_communication is the rest to 1

    @property
    def by_communication(self) -> Floats:
        """The derivative of ``log_step`` by ``log_communication``."""
        return np.asarray(1 - self.by_compute, dtype=np.float64)


def parts(
    values: Floats,
    places: Places,
    units: Units,
    algorithm: Algorithm,
    compute_effect: Floats | float = 0.0,
    communication_effect: Floats | float = 0.0,
) -> Parts:
    """A step's parts at ``values`` (shape ``(parameters,)``); effects are added to the logarithms of its parts."""
    fixed = expit(values[INDEX["fixed_share"]])
    base = np.log(fixed + (1 - fixed) * places.batch / units.batch)
    one = base + values[INDEX["compute_scale"]] + np.log(units.step_s) + compute_effect
    slowest = np.log1p(np.exp(values[INDEX["device_spread"]]) * expected_maximum(places.world_size))
    crowd = np.exp(values[INDEX["contention"]]) * np.log2(places.most)
    log_compute = one + slowest + crowd
    latency_s, s_per_byte = all_reduce_line(values, places, algorithm)
    spread = 1 + np.exp(values[INDEX["link_spread"]]) * expected_maximum(places.nodes)
    seconds = np.exp(values[INDEX["gradient_bytes"]]) * s_per_byte + np.exp(values[INDEX["messages"]]) * latency_s
    with np.errstate(divide="ignore"):  # one device has none: its logarithm is -inf
        log_communication = np.log(seconds * spread) + communication_effect
    hidden, exponent = expit(values[INDEX["hidden_share"]]), 1 + np.exp(values[INDEX["sharpness"]])
    log_hidden = np.log(hidden) + log_compute
    log_joined = np.logaddexp(exponent * log_hidden, exponent * log_communication) / exponent
    log_step = np.logaddexp(np.log1p(-hidden) + log_compute, log_joined)
    by_communication = np.exp(log_joined - log_step + exponent * (log_communication - log_joined))
    return Parts(one, log_compute, log_communication, log_step, 1 - by_communication)


def all_reduce_line(values: Floats, places: Places, algorithm: Algorithm) -> tuple[Floats, Floats]:
    """Latency (s) and time for a byte (s) of one all-reduce, each of shape ``(rows,)``; 0 on one device."""
    n, m, w = places.world_size, places.nodes, places.most
    local_latency_s, far_latency_s = np.exp(values[[INDEX["local_latency_s"], INDEX["far_latency_s"]]])
    local_s, far_s = np.exp(values[[INDEX["local_s_per_byte"], INDEX["far_s_per_byte"]]])
    sharing, across = expit(values[INDEX["sharing"]]), m > 1
    two = np.where(m == 2, np.exp(values[INDEX["two_nodes"]]), 1.0)
    around, within, between = 2 * (n - 1) / n, 2 * (w - 1) / w, 2 * (m - 1) / m
    local_hops = np.where(across, w - 1, np.where(n > 1, w, 0.0))  # of the fullest node, in a ring through all
    shared = np.where(local_hops > 0, local_s * np.maximum(local_hops, 1) ** sharing, 0.0)
    if algorithm == "hierarchical":
        latency_s = within * w * local_latency_s + between * m * far_latency_s * two
        return latency_s, within * local_s * w**sharing + between * far_s * two
    s_per_byte = around * (np.where(across, far_s * two, 0.0) + shared)
    if algorithm == "tree":
        latency_s = 2 * np.log2(w) * local_latency_s + 2 * np.log2(m) * far_latency_s * two
        return latency_s, s_per_byte
    hops_s = np.where(across, (n - m) * local_latency_s + m * far_latency_s * two, n * local_latency_s)
    return around * hops_s, s_per_byte
