"""Does anything that is typed, or a damaged file, end in a traceback, a hang, or a file overwritten?

Random studies as tables, random damage to the text of those that come with raybench, random words of the
command line: each is planned or refused in this process, with ``--dry-run``. A results directory and a CSV
file of measurements with changed values, lines, cells, bytes: each has a report or is refused. Prints how
many of each kind were accepted and refused, and every failure with the input that brought it, as small as
hypothesis finds it. 100,000 inputs are for a night.

    python -m benchmarks.hostile --inputs 3000 --seed 1
    python -m benchmarks.hostile --inputs 3000 --seed 1 --kinds records sweeps measured
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from raybench import study
from raybench.analysis import analyse
from raybench.records.record import TrialRecord
from raybench.report.formats import summary_csv
from tests.support import damage, hostile
from tests.support.answers import check_command, check_measured, check_records, check_tables
from tests.unit.telling import directory_of, swept_records, tell, tell_file, trained_records

Check = Callable[[Any], bool]  # whether the input was accepted; raises for what must not be
KINDS = ("tables", "texts", "commands", "records", "sweeps", "measured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, default=3000, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-s", type=float, default=20.0, help="for one input; longer is a hang")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    for name in ("RAYBENCH_DATA", "RAY_ADDRESS"):
        os.environ.pop(name, None)

    trained, swept = trained_records(), swept_records()
    summary = summary_csv(analyse(*trained).summaries)  # type: ignore[arg-type]

    def text(content: bytes) -> bool:
        Path("typed.toml").write_bytes(content)
        return check_command(study.main, ["typed.toml"], options.limit_s).code == 0

    def damaged(name: str, records: Sequence[TrialRecord]) -> tuple[st.SearchStrategy[Any], Check]:
        sound = tuple(record.to_line().encode() for record in records)
        return damage.lines(sound), lambda lines: check_records(Path(name), lines, options.limit_s, tell)

    kinds: dict[str, tuple[st.SearchStrategy[Any], Check]] = {
        "tables": (hostile.tables(), lambda data: check_tables(data, options.limit_s)),
        "texts": (hostile.toml_texts(), text),
        "commands": (
            hostile.arguments(),
            lambda words: check_command(study.main, words, options.limit_s).code == 0,
        ),
        "records": damaged("trained", trained[1]),
        "sweeps": damaged("swept", swept[1]),
        "measured": (
            damage.csv_files(summary),
            lambda content: check_measured(Path("measured.csv"), content, options.limit_s, tell_file),
        ),
    }
    failed = False
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        directory_of(Path("trained"), *trained)
        directory_of(Path("swept"), *swept)
        for name in options.kinds:
            inputs, check = kinds[name]
            failed |= not run(name, inputs, check, options.inputs // len(options.kinds), options.seed)
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
        ended["accepted" if check(data) else "refused"] += 1
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
