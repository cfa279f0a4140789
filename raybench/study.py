"""The command line: ``python -m raybench.study``, also installed as ``raybench``."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from raybench.commands.communication import communication
from raybench.commands.compare import compare
from raybench.commands.console import lasting
from raybench.commands.doctor import doctor, list_, show
from raybench.commands.predict import predict
from raybench.commands.process import WRONG_REQUEST, leave_without
from raybench.commands.report import report
from raybench.commands.scaling import MORE_OPTIONS, scaling
from raybench.errors import RequestError

MOST_TOLD = 20  # lines of a wrong request; further ones are counted


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Measures how well training scales over devices, why, and what to change.",
)
EXAMPLE = "Example: python -m raybench.study"

app.command(epilog=f"{EXAMPLE} scaling mlp_scaling --hidden-dim 2048", context_settings=MORE_OPTIONS)(scaling)
app.command(epilog=f"{EXAMPLE} report results/default-20260101-120000")(report)
app.command(epilog=f"{EXAMPLE} predict measured.csv --world-sizes 16,32,64 --price-per-device-hour 1.5")(
    predict
)
app.command(epilog=f"{EXAMPLE} compare results/monday results/tuesday")(compare)
app.command(epilog=f"{EXAMPLE} communication --world-sizes 2 --sizes 1KiB,...,64MiB")(communication)
app.command("list", epilog=f"{EXAMPLE} list")(list_)
app.command(epilog=f"{EXAMPLE} show resnet18_cifar10 --smoke")(show)
app.command(epilog=f"{EXAMPLE} doctor")(doctor)


def main() -> NoReturn:
    """Run the command line; a wrong request ends with its lines and exit code 2, never a traceback.

    So does a disk that is full or gone, wherever that is found.
    """
    sys.stdout = lasting(sys.stdout)
    try:
        app()
    except RequestError as error:
        for problem in error.problems[:MOST_TOLD]:
            print(problem, file=sys.stderr)
        if len(error.problems) > MOST_TOLD:
            print(f"and {len(error.problems) - MOST_TOLD:,} more", file=sys.stderr)
        sys.exit(WRONG_REQUEST)
    except OSError as error:  # what was asked for cannot be read, written or shown there
        leave_without(error)
    sys.exit(0)  # typer leaves by SystemExit by itself


if __name__ == "__main__":
    main()
