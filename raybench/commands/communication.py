"""The command ``communication`` as it is typed: what is swept, over which devices, where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from raybench.commands import options as parsed
from raybench.commands.options import parse_path as _path
from raybench.commands.options import parse_whole as _whole
from raybench.commands.process import leave
from raybench.errors import RequestError

TIMEOUT_FACTOR = 10.0  # of the seconds that rounds may take: as many as by default


def communication(
    output: Annotated[
        Path | None,
        typer.Option(
            parser=_path("--output"), metavar="PATH", help="Results directory; it must be new or empty."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in --output, measuring nothing twice.")
    ] = False,
    retry: Annotated[str, typer.Option(help="With --resume: states to try again, as crashed,timeout.")] = "",
    collectives: Annotated[
        str, typer.Option(help="Of all_reduce, reduce_scatter, all_gather, broadcast.  [default: all]")
    ] = "",
    sizes: Annotated[
        str,
        typer.Option(help="Of messages, as 1KiB,64KiB,1MiB.  [default: 1KiB,4KiB,...,256MiB]"),
    ] = "",
    world_sizes: Annotated[str, typer.Option(help="Numbers of devices, as 2,4, or all.")] = "",
    placement: Annotated[str, typer.Option(help="pack, spread or both: how workers stand on nodes.")] = "",
    max_seconds: Annotated[
        str, typer.Option(help="For the rounds of one world size and placement, as 60s, 5m.")
    ] = "",
    device: Annotated[Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Kind of device.")] = None,
    cpus_per_worker: Annotated[
        int | None,
        typer.Option(metavar="N", parser=_whole("--cpus-per-worker"), help="Cores of each worker."),
    ] = None,
    oversubscribe: Annotated[bool, typer.Option("--oversubscribe", help="More workers than cores.")] = False,
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster; else RAY_ADDRESS, else local.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", parser=_whole("--seed"), help="Of the order of blocks.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the answer only.")] = False,
) -> None:
    """Sweep collectives over message sizes, world sizes and placements: time, bandwidths, latency."""
    from raybench.commands.communication_run import run_communication
    from raybench.commands.console import make_console
    from raybench.commands.request import Options
    from raybench.spec.sweep import COLLECTIVES, NODE_PLACEMENTS

    if retry and not resume:
        raise RequestError(f"--retry: goes with --resume (received {retry!r})")
    if resume and output is None:
        raise RequestError("--resume: needs --output DIR, the directory to go on in")
    seconds = parsed.parse_duration(max_seconds, "--max-seconds") if max_seconds else None
    chosen: dict[str, Any] = {
        "collectives": parsed.parse_words(collectives, COLLECTIVES, "--collectives") if collectives else None,
        "message_bytes": parsed.parse_sizes(sizes) if sizes else None,
        "world_sizes": _several(world_sizes) if world_sizes else None,
        "placement": parsed.parse_words(placement, NODE_PLACEMENTS, "--placement") if placement else None,
        "measure.max_seconds": seconds,
        "measure.timeout_seconds": TIMEOUT_FACTOR * seconds if seconds else None,
        "resources.device": device,
        "resources.cpus_per_worker": cpus_per_worker,
        "resources.oversubscribe": True if oversubscribe else None,
        "seed": seed,
    }
    options = Options(
        output=output,
        resume=resume,
        retry=parsed.parse_states(retry),
        overrides=tuple((field, value) for field, value in chosen.items() if value is not None),
        address=address,
        quiet=quiet,
    )
    leave(run_communication(options, make_console()))


def _several(text: str) -> Literal["all"] | tuple[int, ...]:
    sizes = parsed.parse_world_sizes(text)
    if sizes != "all" and min(sizes) < 2:
        raise RequestError(
            f"--world-sizes: from 2 on, one device has nobody to talk to (received {min(sizes)})"
        )
    return sizes
