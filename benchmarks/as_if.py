"""Steps as if on 4 and 8 nodes, measured on 2, against real steps on 4 and 8.

    python -m benchmarks.as_if                       # as root, an hour and a half
    python -m benchmarks.as_if --rates 50mbit        # half an hour

Nodes are network namespaces, links are shaped by tc, and the workload waits where others compute, so that
eight nodes need no more cores than two. A straggler is a rank that is slower in every step, and exponential
waits on every rank. Between nodes the as-if steps know what the two have shown: no network is named.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from raybench.analysis.scaling import Measured
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.units import as_if_unit
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
        """Whether the as-if step's interval for another run holds the real one."""
        low, high = self.as_if_s.again or (self.as_if_s.low, self.as_if_s.high)
        return low <= self.real_s.value <= high


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
        measure=MeasureSpec(min_rounds=6, steps=4, warmup_steps=3, max_seconds=90, timeout_seconds=600),
    )


def _outcomes(rate: str, size: int) -> dict[tuple[float, str], tuple[StepsRequest, Outcome]]:
    here = size == HERE
    asked = tuple(AsIf(world_size=more) for more in MORE) if here else ()
    variants: tuple[Variant, ...] = ("local", "ddp", *AS_IF[: len(asked)]) if here else ("ddp",)
    keys = [(cap, late) for cap in CAPS_MB for late in LATE]
    requests = [_request(size, cap, late, variants, asked) for cap, late in keys]
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalNodes(size, rate=rate, has_ray=False, burst_bytes=BURST_BYTES) as nodes,
    ):
        found = run_on(nodes, requests, Path(folder))
    return dict(zip(keys, zip(requests, found, strict=True), strict=True))


def cases(rate: str) -> Iterator[Case]:
    """Every case of one rate."""
    here = _outcomes(rate, HERE)
    for size in MORE:
        for key, (request, outcome) in _outcomes(rate, size).items():
            record, seen = to_record(request, outcome), to_record(*here[key])
            fit = Measured([seen])
            unit = as_if_unit(seen.config, fit.buckets, AsIf(world_size=size))
            real = Measured([record])
            yield Case(rate, *key, size, fit.pool.time(unit), real.pool.time(real.unit(record)))


def _table(found: Iterable[Case]) -> str:
    lines = [
        "| rate | bucket, MiB | ranks | nodes | as if, ms | real, ms | error |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for each in found:
        cells = (each.rate, f"{each.cap_mb:g}", each.late, str(each.size))
        times = (f"{1e3 * step.value:.1f}" for step in (each.as_if_s, each.real_s))
        held = "" if each.holds else " (outside)"
        lines.append(f"| {' | '.join((*cells, *times))} | {each.error:+.1%}{held} |")
    return "\n".join(lines)


def main(
    rates: Annotated[str, typer.Option(help="Of the links, with commas between them.")] = ",".join(RATES),
) -> None:
    """Print a line for each case, and how well all of them were met."""
    found = list[Case]()
    for rate in rates.split(","):
        found += cases(rate)
        print(_table(found[-len(MORE) * len(CAPS_MB) * len(LATE) :]), flush=True)
    errors = [abs(each.error) for each in found]
    print(
        f"{len(found)} cases: error {median(errors):.1%} in the median, {max(errors):.1%} at most; "
        f"{sum(each.holds for each in found)} intervals hold"
    )


if __name__ == "__main__":
    typer.run(main)
