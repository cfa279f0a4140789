"""How often is one of two equal runs called slower by ``compare``, and by what do starts differ?

Runs pairs of one small study (world sizes 1 and 2), each run a whole command of its own. Prints the standard
deviation between runs with its interval, beside what the intervals say, and how many of the pairs
``--fail-if-slower`` would have failed. With ``--starts`` each run is a start of the workers
within a command (``measure.starts``), which is quicker. Runs that ``--output`` has are not measured again.

    python -m benchmarks.false_alarms --pairs 20 --output /tmp/false-alarms
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory

from scipy.stats import chi2

from raybench.analysis.comparison import Side, same_trials
from raybench.analysis.findings.case import Around
from raybench.analysis.stats.statistics import Estimate, t_quantile
from raybench.analysis.stats.verdict import Verdict, slower_by
from raybench.records.store import ResultsDirectory
from raybench.spec.study import MOST_STARTS
from tests.support.analysis import analyse

STUDY = """
name = "false_alarms"
[workload]
name = "mlp"
input_dim = 512
hidden_dim = 512
output_dim = 256
[knobs]
batch_size = 128
[scaling]
world_sizes = [1, 2]
[measure]
steps = 10
min_rounds = 10
"""
LIMITS = (0.0, 0.03)  # of --fail-if-slower


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--starts", action="store_true", help="runs are starts of the workers in one command")
    parser.add_argument("--output", type=Path, help="where the runs are kept; else nowhere")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = options.output or Path(temporary)
        sides = list(_runs(folder, 2 * options.pairs, options.starts))
    kind = "starts of the workers" if options.starts else "commands"
    print(f"{len(sides)} equal runs, each one of {kind}")
    for world_size in (1, 2):
        _print_spread(sides, world_size)
    _print_alarms(sides)


def _runs(folder: Path, number: int, starts: bool) -> Iterator[Side]:
    """The runs, in the order in which they ran."""
    folder.mkdir(parents=True, exist_ok=True)
    study = folder / "study.toml"
    study.write_text(STUDY)
    each = MOST_STARTS if starts else 1
    for first in range(0, number, each):
        directory, starts_here = folder / f"run-{first}", min(each, number - first)
        if not (directory / "report").is_dir():
            line = [sys.executable, "-m", "raybench.study", "scaling", str(study), "--quiet"]
            options = ["--output", str(directory), "--set", f"measure.starts={starts_here}"]
            subprocess.run([*line, *options], check=True, stdout=subprocess.DEVNULL)
        yield from _sides(directory, starts_here)


def _sides(directory: Path, starts: int) -> Iterator[Side]:
    """Each start of a results directory as a run of its own."""
    with ResultsDirectory.open_readonly(directory) as store:
        for start in range(starts):
            records = [
                record
                for record in store.latest().values()
                if record.request.kind == "steps" and record.request.start == start
            ]
            name = f"{directory.name}, start {start + 1}"
            environment = store.environment()
            yield Side(name, analyse(store.study(), records, Around(environment)), environment)


def _print_spread(sides: Sequence[Side], world_size: int) -> None:
    """The standard deviation between runs, and the one that their intervals for another run say."""
    found = {"throughput": list[Estimate](), "efficiency": list[Estimate]()}
    for side in sides:
        record = next(each for each in side.results.measured if each.config.world_size == world_size)
        scaling = side.results.scaling(record)
        found["throughput"].append(scaling.throughput_samples_per_s)
        if scaling.efficiency is not None and world_size > 1:
            found["efficiency"].append(scaling.efficiency)
    for name, estimates in found.items():
        if len(estimates) < 2:
            continue
        said = math.sqrt(fmean(_standard_deviation(each) ** 2 for each in estimates))
        degrees = len(estimates) - 1
        total = stdev(math.log(each.value) for each in estimates) ** 2
        ends = [total * degrees / float(chi2.ppf(share, degrees)) for share in (0.975, 0.025)]
        value, low, high = (math.sqrt(each) for each in (total, *ends))
        print(
            f"world size {world_size}, {name}: between runs {value:.1%} [{low:.1%}, {high:.1%}]; "
            f"by their intervals {said:.1%}"
        )


def _standard_deviation(estimate: Estimate) -> float:
    """Of the logarithm from run to run: another run's interval holds the noise of two."""
    return estimate.again_log_half_width / t_quantile(math.inf) / math.sqrt(2)


def _print_alarms(sides: Sequence[Side]) -> None:
    """Each pair both ways: either run may be the one that is asked about."""
    both = list(zip(sides[::2], sides[1::2], strict=True))
    pairs = [*both, *((other, one) for one, other in both)]
    trials = [trial for one, other in pairs for trial in same_trials(one, other)]
    for world_size in (1, 2):
        there = [trial for trial in trials if trial.world_size == world_size]
        widths = fmean(trial.speed.log_half_width for trial in there)
        verdicts = {limit: [slower_by(trial.speed, limit) for trial in there] for limit in LIMITS}
        alarms = ", ".join(
            f"{found.count(Verdict.WORSE)} slower and {found.count(Verdict.UNKNOWN)} unknown "
            f"with --fail-if-slower {limit:.0%}"
            for limit, found in verdicts.items()
        )
        print(f"world size {world_size}: of {len(there)} comparisons {alarms}; half-width {widths:.1%}")


if __name__ == "__main__":
    main()
