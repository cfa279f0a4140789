"""Steps as if on 4 and 8 nodes, measured on 2, against real steps on 4 and 8.

    python -m benchmarks.as_if                                                  # as root, 36 cases
    python -m benchmarks.as_if --rates 300mbit --buckets 25 --ranks even        # two of them

It says first how long it will take. The machine should do nothing else: a rank that waits for a core is late.
Nodes are network namespaces, links are shaped by tc, and the workload waits where others compute, so that
eight nodes need no more cores than two. A straggler is a rank that is slower in every step, and exponential
waits on every rank. Between nodes the as-if steps know what the two have shown: no network is named.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from raybench.analysis.resolve import resolve
from raybench.analysis.scaling import Fit
from raybench.analysis.simulate.as_if import more_devices
from raybench.analysis.stats.statistics import Estimate
from raybench.records.messages import Outcome
from raybench.records.requests import AS_IF, AsIf, StepsRequest, Variant
from raybench.spec.knobs import Setting
from raybench.spec.study import MeasureSpec
from raybench.spec.workloads import FactorySpec
from tests.support.local_nodes import LocalNodes
from tests.support.node_ranks import run_on
from tests.support.planted import to_record
from tests.unit import studies

RATES = ("50mbit", "100mbit", "300mbit")
CAPS_MB = (0.4, 1.0, 25.0)
LATE = {"even": {}, "straggler": {"straggler_s": 0.006, "jitter_s": 0.004}}
KIB = (512,) * 8  # 4 MiB of gradients
LAYER_S = 0.006
BURST_BYTES = 32 * 1024  # a bucket of tokens that fills while nothing is sent is no property of networks
HERE, MORE = 2, (4, 8)
STUDY = studies.study()
ROUNDS, STEPS, MAX_S = 6, 4, 90
NODES_S, SET_UP_S = 25.0, 5.0  # to make nodes and start ranks; of a trial


@dataclass(frozen=True)
class Case:
    """One setting on links of one rate."""

    rate: str
    cap_mb: float
    late: str
    size: int
    as_if_s: Estimate
    real_s: Estimate

    @property
    def error(self) -> float:
        """As-if over real, less 1."""
        return self.as_if_s.value / self.real_s.value - 1

    @property
    def holds(self) -> bool:
        """Whether the interval that a report shows holds the real step."""
        return self.as_if_s.low <= self.real_s.value <= self.as_if_s.high


def _request(
    size: int, cap_mb: float, late: str, variants: tuple[Variant, ...], as_if: tuple[AsIf, ...]
) -> StepsRequest:
    workload = {"factory": "tests.support.waits:build", "kib": KIB, "layer_s": LAYER_S} | LATE[late]
    return studies.request(
        role="scaling",
        workload=FactorySpec.model_validate(workload),
        setting=Setting(batch_size=1, bucket_cap_mb=cap_mb),
        world_size=size,
        placement="spread",
        variants=variants,
        as_if=as_if,
        measure=MeasureSpec(
            min_rounds=ROUNDS, steps=STEPS, warmup_steps=3, max_seconds=MAX_S, timeout_seconds=600
        ),
    )


@dataclass(frozen=True)
class Chosen:
    """What is measured at each rate."""

    caps_mb: Sequence[float]
    ranks: Sequence[str]

    @property
    def keys(self) -> list[tuple[float, str]]:
        """A trial for each of them, on each number of nodes."""
        return [(cap, late) for cap in self.caps_mb for late in self.ranks]


def expected_s(rate: str, chosen: Chosen) -> float:
    """What the cases of a rate take, were a step its waits and a ring's transfers one after the other."""
    waits_s, bits = 2 * len(KIB) * LAYER_S, 8 * 1024 * sum(KIB)
    total_s = 0.0
    for size in (HERE, *MORE):
        # here without transfers, with them, and as if on more; there with them alone
        sizes = [1, size, *MORE] if size == HERE else [size]
        sent_s = [2 * (n - 1) / n * bits / (1e6 * float(rate.removesuffix("mbit"))) for n in sizes]
        rounds_s = ROUNDS * (STEPS + 1) * sum(waits_s + each for each in sent_s)
        total_s += NODES_S + len(chosen.keys) * (min(rounds_s, MAX_S) + SET_UP_S)
    return total_s


def _outcomes(rate: str, size: int, chosen: Chosen) -> dict[tuple[float, str], tuple[StepsRequest, Outcome]]:
    here = size == HERE
    asked = tuple(AsIf(world_size=more) for more in MORE) if here else ()
    variants: tuple[Variant, ...] = ("local", "ddp", *AS_IF[: len(asked)]) if here else ("ddp",)
    requests = [_request(size, cap, late, variants, asked) for cap, late in chosen.keys]
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalNodes(size, rate=rate, has_ray=False, burst_bytes=BURST_BYTES) as nodes,
    ):
        found = run_on(nodes, requests, Path(folder))
    return dict(zip(chosen.keys, zip(requests, found, strict=True), strict=True))


def cases(rate: str, chosen: Chosen) -> Iterator[Case]:
    """Every case of one rate."""
    here = _outcomes(rate, HERE, chosen)
    for size in MORE:
        for key, (request, outcome) in _outcomes(rate, size, chosen).items():
            record, more = to_record(request, outcome), more_devices(resolve(STUDY, [to_record(*here[key])]))
            assert more is not None
            (point,) = (each for each in more.points if each.shape.world_size == size)
            assert point.step_time_s is not None
            yield Case(rate, *key, size, point.step_time_s, Fit([record]).scaling(record).step_time_s)


HEAD = (
    "| rate | bucket, MiB | ranks | nodes | as if, ms | interval | real, ms | error |\n"
    "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
)


def _row(each: Case) -> str:
    cells = (each.rate, f"{each.cap_mb:g}", each.late, str(each.size))
    low, high = each.as_if_s.low, each.as_if_s.high
    times = (f"{1e3 * each.as_if_s.value:.1f}", f"{1e3 * low:.0f} to {1e3 * high:.0f}")
    held = "" if each.holds else " (outside)"
    return f"| {' | '.join((*cells, *times))} | {1e3 * each.real_s.value:.1f} | {each.error:+.1%}{held} |"


def main(
    rates: Annotated[str, typer.Option(help="Of the links, with commas between them.")] = ",".join(RATES),
    buckets: Annotated[str, typer.Option(help="In MiB.")] = ",".join(map(str, CAPS_MB)),
    ranks: Annotated[str, typer.Option(help="Of even, straggler.")] = ",".join(LATE),
) -> None:
    """Print a row for each case as it is known, and how well all of them were met."""
    chosen = Chosen([float(each) for each in buckets.split(",")], ranks.split(","))
    asked, number = rates.split(","), len(rates.split(",")) * len(chosen.keys) * len(MORE)
    minutes = math.ceil(sum(expected_s(rate, chosen) for rate in asked) / 60)
    print(f"{number} cases, about {minutes} min on two idle cores\n\n{HEAD}", flush=True)
    found = list[Case]()
    for rate in asked:
        for case in cases(rate, chosen):
            found.append(case)
            print(_row(case), flush=True)
    errors = [abs(each.error) for each in found]
    print(
        f"\n{len(found)} cases: error {median(errors):.1%} in the median, {max(errors):.1%} at most; "
        f"{sum(each.holds for each in found)} intervals hold"
    )


if __name__ == "__main__":
    typer.run(main)
