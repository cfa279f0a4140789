"""Does anything that is typed, or a damaged file, end in a traceback, a hang, or a file overwritten?

Random studies as tables, random damage to the text of those that come with raybench, random words of the
command line: each is planned or refused in this process, with ``--dry-run``. A results directory and a CSV
file of measurements with changed values, lines, cells, bytes: each has a report or is refused. Prints how
many of each kind were accepted and refused, and every failure with the input that brought it, as small as
hypothesis finds it. 100,000 inputs are for a night.

    python benchmarks/hostile.py --inputs 3000 --seed 1
    python benchmarks/hostile.py --inputs 3000 --seed 1 --kinds records measured
"""

from __future__ import annotations

import argparse
import io
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
from rich.console import Console

from raybench import study
from raybench.analysis import analyse
from raybench.analysis.results import StudyResults
from raybench.commands.import_report import report_file
from raybench.machine.environment import capture
from raybench.machine.resources import Resources
from raybench.plan.resolve import make_plan
from raybench.records.store import ResultsDirectory
from raybench.report.answer import answer_of
from raybench.report.contents import make_tables
from raybench.report.formats import summary_csv
from raybench.spec.load import resolve
from raybench.spec.study import Study
from raybench.testing import FakeRunner, damage, hostile, run_all
from raybench.testing.answers import check_command, check_measured, check_records, check_tables

Check = Callable[[Any], bool]  # whether the input was accepted; raises for what must not be
KINDS = ("tables", "texts", "commands", "records", "measured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, default=3000, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-s", type=float, default=20.0, help="for one input; longer is a hang")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    for name in ("RAYBENCH_DATA", "RAY_ADDRESS"):
        os.environ.pop(name, None)

    asked, measured = measured_study()

    def text(content: bytes) -> bool:
        Path("typed.toml").write_bytes(content)
        return check_command(study.main, ["typed.toml"], options.limit_s).code == 0

    kinds: dict[str, tuple[st.SearchStrategy[Any], Check]] = {
        "tables": (hostile.tables(), lambda data: check_tables(data, options.limit_s)),
        "texts": (hostile.toml_texts(), text),
        "commands": (
            hostile.arguments(),
            lambda words: check_command(study.main, words, options.limit_s).code == 0,
        ),
        "records": (
            damage.lines(measured[0]),
            lambda lines: check_records(Path("results"), lines, options.limit_s, tell),
        ),
        "measured": (
            damage.csv_files(measured[1]),
            lambda content: check_measured(Path("measured.csv"), content, options.limit_s, tell_file),
        ),
    }
    failed = False
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        with ResultsDirectory.create(Path("results"), asked, capture()):
            pass
        for name in options.kinds:
            inputs, check = kinds[name]
            failed |= not run(name, inputs, check, options.inputs // len(options.kinds), options.seed)
        os.chdir("/")
    sys.exit(failed)


def tell(results: StudyResults) -> None:
    """All that a report says of a study in words and tables."""
    assert answer_of(results)
    make_tables(results)
    summary_csv(results.summaries)


def tell_file(file: Path) -> None:
    """The report of a CSV file, on a terminal that nobody sees."""
    report_file(file, None, None, Console(file=io.StringIO()), quiet=False)


def measured_study() -> tuple[Study, tuple[tuple[bytes, ...], str]]:
    """A study on simulated hardware, the lines of its records, and its ``summary.csv``."""
    data = {"name": "damaged", "workload": {"name": "mlp"}, "knobs": {"batch_size": [32, 64]}}
    plan = make_plan(resolve({**data, "resources": {"device": "cpu"}}), Resources("cpu", 4, "a CPU"))
    requests = [trial.request for trial in plan.trials()]
    records, _ = run_all(FakeRunner(seed=1), requests, plan.study.name)
    lines = tuple(record.to_line().encode() for record in records)
    return plan.study, (lines, summary_csv(analyse(plan.study, records).summaries))


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
