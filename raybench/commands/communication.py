"""The command ``communication`` as it is typed: what is swept, over which devices, where."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from raybench.commands import options as parsed
from raybench.commands.options import FieldOption, Options, with_options
from raybench.commands.process import leave
from raybench.spec.sweep import Sweep

TIMEOUT_FACTOR = 10.0  # of the seconds that rounds may take: as many as by default


FIELDS = (
    FieldOption("--collectives", "collectives", "all_reduce,broadcast"),
    FieldOption("--sizes", "message_bytes", "1KiB,...,64MiB", parsed.parse_sizes),
    FieldOption("--world-sizes", "world_sizes", "2,4"),
    FieldOption("--placement", "placement", "pack,spread"),
    FieldOption("--loopback-nic", "loopback_nic"),
    FieldOption("--max-seconds", "measure.max_seconds", "60s", parsed.parse_duration),
    FieldOption("--device", "resources.device"),
    FieldOption("--cpus-per-worker", "resources.cpus_per_worker"),
    FieldOption("--oversubscribe", "resources.oversubscribe"),
    FieldOption("--seed", "seed"),
)


def command_of(sweep: Sweep) -> str:
    """The command that measures the same."""
    words = [f"python -m raybench.study {Sweep.name}"]
    for each in FIELDS:
        value = attrgetter(each.field)(sweep)
        if isinstance(value, bool):
            words += [each.name] if value else []
        else:
            words.append(f"{each.name} {','.join(map(str, value)) if isinstance(value, tuple) else value}")
    return " ".join(words)


@with_options(Options, Sweep, *FIELDS)
def communication(*, options: Options) -> None:
    """Sweep collectives over message sizes, world sizes and placements: time, bandwidths, latency."""
    from raybench.commands.console import make_console
    from raybench.commands.runs import run_communication

    if max_seconds := dict(options.overrides).get("measure.max_seconds"):
        timeout = "measure.timeout_seconds", TIMEOUT_FACTOR * max_seconds
        options = replace(options, overrides=(*options.overrides, timeout))
    leave(lambda: run_communication(options, make_console()))
