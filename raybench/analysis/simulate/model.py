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

What is believed of each parameter before anything is measured: measurements on few devices say little of what
many will add, above all of the latency that each further participant brings. Each parameter is therefore
given the order of magnitude that its physics has, as a normal distribution of its logarithm (of its logit
where it is a share), wide enough for what is in use. Two standard deviations to each side of the middle
reach:

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from raybench.analysis.collectives import Link, LinkKey
from raybench.analysis.simulate.steps import MeasuredPoint, Question, Shape
from raybench.analysis.stats.statistics import Estimate

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


@dataclass(frozen=True)
class Places:
    """One row for each question: every column has shape ``(rows,)``."""

    batch: Floats  # per device
    world_size: Floats
    nodes: Floats
    most: Floats  # workers on the fullest node
    slowest_device: Floats  # expected maximum of so many standard normal values
    slowest_link: Floats

    @staticmethod
    def of(asked: Sequence[Question] | Sequence[MeasuredPoint]) -> Places:
        """The columns of the questions, or of what was measured."""
        world_size = np.array([each.shape.world_size for each in asked], dtype=np.float64)
        nodes = np.array([each.shape.nodes for each in asked], dtype=np.float64)
        return Places(
            np.array([each.batch_size for each in asked], dtype=np.float64),
            world_size,
            nodes,
            np.array([max(each.shape.workers) for each in asked], dtype=np.float64),
            expected_maximum(world_size),
            expected_maximum(nodes),
        )

    def __len__(self) -> int:
        return len(self.batch)


def expected_maximum(count: Floats) -> Floats:
    """The largest of so many standard normal values, in the mean: 0 for one, 1.03 for 4, 2.35 for 64.

    Blom (1958), "Statistical estimates and transformed beta-variables": the quantile at (n - 3/8) / (n +
    1/4), within 5% of the exact values. It grows as the root of 2 log n, as extreme value theory says.
    """
    return np.asarray(ndtri((count - 0.375) / (count + 0.25)), dtype=np.float64)


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
    log_bare_compute: Floats  # as measured alone: between the mean device's and the slowest's
    log_step: Floats
    # derivative of log_step by the logarithm of compute; by communication it is the rest to 1
    by_compute: Floats


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
    contention = positive["contention"] * np.log2(places.most)
    if variant == "shared":
        contention = contention + np.log1p(positive["serial_share"] * (places.world_size - 1))
    log_compute = one + slower + contention
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
    return Parts(one, one + contention + slower / 2, log_step, 1 - by_communication)


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
    # of the fullest node, in a ring through all
    local_hops = np.where(across, w - 1, np.where(n > 1, w, 0.0))
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


LEAST_ERROR = 0.10  # of a logarithm: a training's messages are not alone on the network, as a sweep's are
STEP = 1e-5


@dataclass(frozen=True)
class SweptLines:
    """Latency and time for a byte of all-reduces at some places; errors are those of logarithms.

    An error is infinite where the sweep does not show it.
    """

    places: Places
    log_latency: Floats
    latency_error: Floats
    log_s_per_byte: Floats
    rate_error: Floats

    @property
    def crosses_nodes(self) -> bool:
        """Whether it says something of the network between nodes."""
        return bool((np.isfinite(self.rate_error) & (self.places.nodes > 1)).any())

    def residuals(self, values: Floats, variant: Variant) -> Floats:
        """Measured less model, in standard deviations: latencies, then times for a byte."""
        return self._residuals(values[: len(MEANS)], variant)

    def slopes(self, values: Floats, variant: Variant, columns: int) -> Floats:
        """The model's derivatives, shape ``(rows, columns)``, in the same unit."""
        parameters = values[: len(MEANS)]
        center = self._residuals(parameters, variant)
        moved = self._residuals(parameters + STEP * np.eye(len(MEANS)), variant)
        found = np.zeros((len(center), columns))
        found[:, : len(MEANS)] = (center - moved).T / STEP
        return found

    def _residuals(self, parameters: Floats, variant: Variant) -> Floats:
        latency_s, s_per_byte = all_reduce_line(parameters, self.places, variant)
        has_latency = latency_s > 0  # a variant without latency is not held against one
        log_latency_s = np.log(np.where(has_latency, latency_s, 1.0))
        return np.concatenate(
            [
                np.where(has_latency, (self.log_latency - log_latency_s) / self.latency_error, 0.0),
                (self.log_s_per_byte - np.log(s_per_byte)) / self.rate_error,
            ],
            axis=-1,
        )


def swept_lines(link: Mapping[LinkKey, Link] | None) -> SweptLines | None:
    """The all-reduces of a sweep; None where there are none on two devices or more whose nodes are known."""
    found = {
        Shape.even(key.world_size, key.nodes): line
        for key, line in (link or {}).items()
        if key.collective == "all_reduce" and key.world_size > 1 and key.nodes is not None
    }
    if not found:
        return None
    latency = [_log(line.latency_s) for line in found.values()]
    rate = [_log(line.algorithm_bandwidth_bytes_per_s) for line in found.values()]
    return SweptLines(
        Places.of([Question(shape, 1) for shape in found]),
        np.array([value for value, _ in latency]),
        np.array([error for _, error in latency]),
        np.array([-value for value, _ in rate]),
        np.array([error for _, error in rate]),
    )


def _log(estimate: Estimate | None) -> tuple[float, float]:
    """The logarithm and its error."""
    if estimate is None:
        return 0.0, float("inf")
    return float(np.log(estimate.value)), float(np.hypot(LEAST_ERROR, estimate.log_half_width / 1.96))
