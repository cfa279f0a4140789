"""raybench's model of a step of data-parallel training.

A step of n devices on m nodes, at most w on one, lasts

    T = (1 - h) C + ((h C)^p + M^p)^(1/p)

with C the compute of the slowest device and M the communication: of C the share h can run while gradients
travel. p joins the two: 1 lets nothing overlap, infinity hides all that fits (AdaptDL, OSDI 2021, has h =
1). So what is exposed of M falls when compute grows, and never below nothing.

    C = (fixed + each * batch) (1 + spread z(n)) exp(contention log2 w)     z(n): the largest of n normals
    M = (bytes * R + messages * L) (1 + link spread z(m))

R (s for a byte) and L (s) are those of one all-reduce, by variant:

- ``ring`` through all devices (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms"):
  R = 2 (n-1)/n (far + local hops^sharing), L = 2 (n-1)/n times the sum of all hops' latencies;
- ``tree`` (Sanders, Speck, Traeff 2009, "Two-tree algorithms", as in NCCL): L grows with log2 of w and m;
- ``hierarchical``: rings within the nodes and one between them, one after the other;
- ``shared``: the ring, and something that all wait for in turn (a file system, a host): C grows by a share
  with each further device, as Amdahl's law says of a serial part;
- ``stepwise``: the ring of gloo, whose 2 (n-1) steps wait for one another, each as long as the slowest hop
  takes with whatever software adds to it: up to milliseconds;
- ``adaptdl`` (Qiao et al. 2021, "Pollux", OSDI, equations 9 to 11): all of C can hide communication, which
  grows by a share of it with every device beyond two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from raybench.analysis.prediction.parameters import INDEX
from raybench.analysis.prediction.places import Places

Floats = NDArray[np.float64]
Variant = Literal["ring", "tree", "hierarchical", "shared", "adaptdl", "stepwise"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)


@dataclass(frozen=True)
class Units:
    """What times and batches are counted in, so that a study of microseconds is fitted as one of minutes."""

    step_s: float
    batch: float


@dataclass(frozen=True)
class Parts:
    """Logarithms of the parts of a step, each of shape ``(..., rows)``, and how the step depends on them."""

    log_one_device: Floats  # compute of one device alone
    log_told_compute: Floats  # as steps are told apart: between the mean device's and the slowest's
    log_step: Floats
    by_compute: (
        Floats  # derivative of log_step by the logarithm of compute; by communication it is the rest to 1
    )


def parts(
    values: Floats,
    places: Places,
    units: Units,
    variant: Variant,
    compute_effect: Floats | float = 0.0,
    communication_effect: Floats | float = 0.0,
) -> Parts:
    """A step's parts at ``values`` (shape ``(..., parameters)``); effects are added to logarithms."""
    raw, positive = _columns(values)
    fixed = expit(raw["fixed_share"])
    base = np.log(fixed + (1 - fixed) * places.batch / units.batch) + np.log(units.step_s)
    one = base + raw["compute_scale"] + compute_effect
    slower = np.log1p(positive["device_spread"] * places.slowest_device)
    crowd = positive["contention"] * np.log2(places.most)
    if variant == "shared":
        crowd = crowd + np.log1p(positive["serial_share"] * (places.world_size - 1))
    log_compute = one + slower + crowd
    latency_s, s_per_byte = all_reduce_line(values, places, variant)
    seconds = positive["gradient_bytes"] * s_per_byte + positive["messages"] * latency_s
    with np.errstate(divide="ignore"):  # one device has none: its logarithm is -inf
        log_communication = np.log(seconds * (1 + positive["link_spread"] * places.slowest_link))
    log_communication = log_communication + communication_effect
    hidden, exponent = expit(raw["hidden_share"]), 1 + positive["sharpness"]
    if variant == "adaptdl":
        hidden = np.full_like(hidden, 1 - 1e-9)
    log_hidden = np.log(hidden) + log_compute
    log_joined = np.logaddexp(exponent * log_hidden, exponent * log_communication) / exponent
    log_step = np.logaddexp(np.log1p(-hidden) + log_compute, log_joined)
    by_communication = np.exp(log_joined - log_step + exponent * (log_communication - log_joined))
    return Parts(one, one + crowd + slower / 2, log_step, 1 - by_communication)


def all_reduce_line(values: Floats, places: Places, variant: Variant) -> tuple[Floats, Floats]:
    """Latency (s) and time for a byte (s) of one all-reduce, shape ``(..., rows)``; 0 on one device."""
    raw, positive = _columns(values)
    n, m, w = places.world_size, places.nodes, places.most
    local_latency_s, local_s, sharing = (
        positive["local_latency_s"],
        positive["local_s_per_byte"],
        raw["sharing"],
    )
    across, two = m > 1, np.where(m == 2, np.exp(raw["two_nodes"]), 1.0)
    far_latency_s, far_s = positive["far_latency_s"] * two * across, positive["far_s_per_byte"] * two * across
    around, within, between = 2 * (n - 1) / n, 2 * (w - 1) / w, 2 * (m - 1) / m
    if variant == "adaptdl":
        growth = 1 + positive["serial_share"] * np.maximum(n - 2, 0)
        return np.zeros_like(local_s + n), np.where(across, far_s, local_s * (n > 1)) * growth
    if variant == "hierarchical":
        latency_s = within * w * local_latency_s + between * m * far_latency_s
        return latency_s, within * local_s * w ** expit(sharing) + between * far_s
    local_hops = np.where(
        across, w - 1, np.where(n > 1, w, 0.0)
    )  # of the fullest node, in a ring through all
    shared_s = local_s * np.maximum(local_hops, 1) ** expit(sharing) * (local_hops > 0)
    s_per_byte = around * (far_s + shared_s)
    if variant == "stepwise":
        slowest_s = np.where(across, np.maximum(far_latency_s, local_latency_s), local_latency_s)
        return 2 * (n - 1) * slowest_s * positive["step_cost"], s_per_byte
    if variant == "tree":
        return 2 * np.log2(w) * local_latency_s + 2 * np.log2(m) * far_latency_s, s_per_byte
    return around * (np.where(across, n - m, n) * local_latency_s + m * far_latency_s), s_per_byte


class _Columns(dict[str, Floats]):
    """Parameters by name, each of shape ``(..., 1)``, to be spread over rows."""

    def __init__(self, values: Floats) -> None:
        super().__init__()
        self.values_ = values

    def __missing__(self, name: str) -> Floats:
        return self.values_[..., INDEX[name], None]


def _columns(values: Floats) -> tuple[_Columns, _Columns]:
    """The parameters as they are, and their exponentials."""
    return _Columns(values), _Columns(np.exp(values))
