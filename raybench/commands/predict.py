"""The command ``predict`` as it is typed: what other numbers of devices would bring, and cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from raybench.commands import options as parsed
from raybench.commands.options import parse_above_0, parse_path, parse_whole
from raybench.commands.process import one_blas_thread
from raybench.errors import RequestError

MOST_DEVICES = 10**6


def predict(
    source: Annotated[
        Path,
        typer.Argument(
            parser=parse_path("DIR"),
            metavar="DIR|FILE.csv",
            help="A results directory, or a CSV file of step times.",
        ),
    ],
    world_sizes: Annotated[
        str,
        typer.Option(
            help="To predict, as 16,32,64.  [default: doublings, up to 8 times the largest measured]"
        ),
    ] = "",
    devices_per_node: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=parse_whole("--devices-per-node"),
            help="Devices that fill a node.  [default: the most that one node had]",
        ),
    ] = None,
    nodes: Annotated[str, typer.Option(help="Of each world size, as 4,8,16: workers stand evenly.")] = "",
    scaling: Annotated[
        Literal["weak", "strong"] | None,
        typer.Option(
            help="Whether batches are per device (weak) or global.  [default: as measured, or weak]"
        ),
    ] = None,
    setting: Annotated[
        str, typer.Option(help="Knobs to predict for, as precision=bf16.  [default: the headline's]")
    ] = "",
    communication: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path("--communication"),
            metavar="DIR",
            help="Results of the command communication: the network.",
        ),
    ] = None,
    price_per_device_hour: Annotated[
        float | None,
        typer.Option(metavar="P", parser=parse_above_0("--price-per-device-hour"), help="In any currency."),
    ] = None,
    price_per_node_hour: Annotated[
        float | None,
        typer.Option(metavar="P", parser=parse_above_0("--price-per-node-hour"), help="Beside the devices'."),
    ] = None,
    samples_per_epoch: Annotated[
        int | None,
        typer.Option(metavar="N", parser=parse_whole("--samples-per-epoch"), help="Of the data set."),
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(metavar="E", parser=parse_above_0("--epochs"), help="Of a run.")
    ] = None,
    what_if: Annotated[
        str,
        typer.Option(
            metavar="NAME=VALUES",
            help="Instead: settings of the same devices, as bucket_cap_mb=1,5,25,100; also batch_size, "
            "gradient_compression, gradient_accumulation, link=10Gbit/s.",
        ),
    ] = "",
    within: Annotated[str, typer.Option(help="The cheapest way to run in this time, as 2h, 90m.")] = "",
    for_at_most: Annotated[
        float | None,
        typer.Option(
            metavar="AMOUNT", parser=parse_above_0("--for-at-most"), help="The fastest run for this money."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path("--output"), metavar="FILE.csv", help="Write the predictions; a new file."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the sentences only.")] = False,
) -> None:
    """Step times, efficiency and cost on numbers of devices that were not measured, with intervals."""
    one_blas_thread()
    from raybench.commands.console import make_console
    from raybench.commands.predict_run import PredictOptions, parse_changes, run_predict, run_what_if

    asked = PredictOptions(
        source=source,
        world_sizes=_world_sizes(world_sizes) if world_sizes else None,
        devices_per_node=devices_per_node,
        nodes=parsed.parse_node_counts(nodes) if nodes else None,
        scaling=scaling,
        setting=_setting(setting) if setting else {},
        communication=communication,
        price_per_device_hour=price_per_device_hour,
        price_per_node_hour=price_per_node_hour,
        samples_per_epoch=samples_per_epoch,
        epochs=epochs,
        within_s=parsed.parse_duration(within, "--within") if within else None,
        for_at_most=for_at_most,
        output=output,
        quiet=quiet,
    )
    if what_if:
        if asked != PredictOptions(source=source, communication=communication, quiet=quiet):
            raise RequestError("--what-if: with --communication and --quiet only, it predicts other settings")
        changes = parse_changes(what_if)
        raise typer.Exit(
            run_what_if(source, changes, make_console(), communication=communication, quiet=quiet)
        )
    raise typer.Exit(run_predict(asked, make_console()))


def _world_sizes(text: str) -> tuple[int, ...]:
    sizes = parsed.parse_world_sizes(text)
    if sizes == "all":
        raise RequestError('--world-sizes: numbers of devices to predict, as 16,32,64 (received "all")')
    if max(sizes) > MOST_DEVICES:
        raise RequestError(f"--world-sizes: at most {MOST_DEVICES:,} (received {max(sizes)})")
    return sizes


def _setting(text: str) -> dict[str, str]:
    """``precision=bf16,bucket_cap_mb=25`` as text by knob."""
    chosen = dict[str, str]()
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not (name and equals and value):
            raise RequestError(f"--setting: KNOB=VALUE with commas between them (received {part!r})")
        chosen[name] = value
    return chosen
