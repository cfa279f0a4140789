"""Does anything that is typed end in a traceback, a hang, or a file overwritten?

Random studies as tables, random damage to the text of those that come with raybench, random words of the
command line: each is planned or refused in this process, with ``--dry-run``. Prints how many of each kind
were planned and refused, and every failure with the input that brought it, as small as hypothesis finds it.
100,000 inputs are for a night.

    python benchmarks/hostile.py --inputs 3000 --seed 1
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from raybench import study
from raybench.testing import hostile
from raybench.testing.answers import check_command, check_tables

Check = Callable[[Any], bool]  # whether the input was planned; raises for what must not be


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, default=3000, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-s", type=float, default=20.0, help="for one input; longer is a hang")
    options = parser.parse_args()
    for name in ("RAYBENCH_DATA", "RAY_ADDRESS"):
        os.environ.pop(name, None)

    def text(content: bytes) -> bool:
        Path("typed.toml").write_bytes(content)
        return check_command(study.main, ["typed.toml"], options.limit_s).code == 0

    kinds: dict[str, tuple[st.SearchStrategy[Any], Check]] = {
        "tables": (hostile.tables(), lambda data: check_tables(data, options.limit_s)),
        "texts": (hostile.toml_texts(), text),
        "command lines": (
            hostile.arguments(),
            lambda words: check_command(study.main, words, options.limit_s).code == 0,
        ),
    }
    failed = False
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, (inputs, check) in kinds.items():
            failed |= not run(name, inputs, check, options.inputs // len(kinds), options.seed)
        os.chdir("/")
    sys.exit(failed)


def run(name: str, inputs: st.SearchStrategy[Any], check: Check, number: int, first: int) -> bool:
    """Whether all inputs of one kind ended as they must."""
    ended, longest_s, began = Counter[str](), 0.0, time.monotonic()

    @seed(first)
    @settings(max_examples=number, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(inputs)
    def tried(data: Any) -> None:
        nonlocal longest_s
        at = time.monotonic()
        ended["planned" if check(data) else "refused"] += 1
        longest_s = max(longest_s, time.monotonic() - at)

    whole = True
    try:
        tried()
    except BaseException as error:
        traceback.print_exception(error)
        whole = False
    counts = ", ".join(f"{count:,} {word}" for word, count in sorted(ended.items()))
    seconds = time.monotonic() - began
    print(
        f"{name}: {counts}; longest {longest_s:.2f} s, {seconds:.0f} s in all; {'ok' if whole else 'FAILED'}"
    )
    return whole


if __name__ == "__main__":
    main()
