"""The command ``predict`` as it is typed: what other numbers of devices would bring, and cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from raybench.commands.networks import parse_network
from raybench.commands.options import (
    BatchMode,
    Sources,
    amount,
    count,
    counts,
    option,
    path,
    typed,
    with_options,
)
from raybench.commands.process import one_blas_thread
from raybench.spec.base import Listed
from raybench.spec.network import Network

MOST_DEVICES = 10**6


Devices = Annotated[int, Field(gt=0, le=MOST_DEVICES, strict=True)]
world_sizes = typed(
    Listed[Devices],
    f"numbers of devices, each once, at most {MOST_DEVICES:,}, as 16,32,64",
)


@dataclass(frozen=True)
class PredictOptions:
    """Options of ``predict``."""

    sources: Sources
    world_sizes: Annotated[
        tuple[int, ...] | None,
        option(
            "TEXT",
            world_sizes,
            "To predict, as 16,32,64.  [default: doublings, up to 8 times the largest measured]",
        ),
    ] = None
    devices_per_node: Annotated[
        int | None,
        option("N", count, "Devices that fill a node.  [default: the most that one node had]"),
    ] = None
    nodes: Annotated[
        tuple[int, ...] | None,
        option("TEXT", counts, "Of each world size, as 4,8,16: workers stand evenly."),
    ] = None
    scaling: BatchMode = None
    communication: Annotated[
        Path | None,
        option(
            "PATH",
            path,
            "What the network can do: results of the command communication, or logs of nccl-tests (a file or "
            "a folder).",
        ),
    ] = None
    network: Annotated[
        Network | None,
        option(
            "TEXT",
            parse_network,
            "What joins them: 8x400Gbit/s, a preset, a TOML file or a sweep; by one trial's gradients.",
        ),
    ] = None
    price_per_device_hour: Annotated[float | None, option("P", amount, "In any currency.")] = None
    samples_per_epoch: Annotated[int | None, option("N", count, "Of the data set.")] = None
    epochs: Annotated[float | None, option("E", amount, "Of a run.")] = None
    what_if: Annotated[
        str,
        typer.Option(
            metavar="NAME=VALUES",
            help="Instead: settings of the same devices, as bucket_cap_mb=1,5,25,100; also batch_size, "
            "gradient_compression, gradient_accumulation, link=10Gbit/s.",
        ),
    ] = ""
    output: Annotated[Path | None, option("FILE.csv", path, "Write the predictions; a new file.")] = None
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the sentences only.")] = False


@with_options(PredictOptions)
def predict(*, options: PredictOptions) -> None:
    """Step times, efficiency and cost on numbers of devices that were not measured, with intervals."""
    one_blas_thread()
    from raybench.commands.console import make_console
    from raybench.commands.predict_run import run_predict, run_what_if

    run = run_what_if if options.what_if else run_predict
    raise typer.Exit(run(options, make_console()))
