"""Do the intervals of "another run" hold what other runs of the same study found?

    python -m benchmarks.another_run DIR DIR...

Of each setting and number of devices that two of them have: throughput, efficiency, and gain over the
default; every ordered pair of directories counts once.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from collections.abc import Hashable
from pathlib import Path
from statistics import median

from raybench.analysis.resolve import resolve
from raybench.analysis.stats.statistics import Estimate
from raybench.records.store import ResultsDirectory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="+", type=Path)
    runs = [figures(each) for each in parser.parse_args().directories]
    held, widths = defaultdict[str, list[bool]](list), defaultdict[str, list[float]](list)
    for one, other in itertools.permutations(runs, 2):
        for (name, key), found in one.items():
            if found.again is None or (name, key) not in other:
                continue
            low, high = found.again
            held[name].append(low <= other[name, key].value <= high)
            widths[name].append((high - low) / 2 / found.value)
    print("| figure | held | half-width: median | largest |\n| --- | --- | --- | --- |")
    for name, each in held.items():
        wide = f"±{median(widths[name]):.0%} | ±{max(widths[name]):.0%}"
        print(f"| {name} | {sum(each)} of {len(each)} ({sum(each) / len(each):.0%}) | {wide} |")


def figures(directory: Path) -> dict[tuple[str, Hashable], Estimate]:
    """Those of one study, by name and what they are of; gains as ratios."""
    with ResultsDirectory.open_readonly(directory) as store:
        facts = resolve(store.study(), list(store.records()), store.environment())
    found = dict[tuple[str, Hashable], Estimate]()
    for record in facts.references:
        scaling, gain, key = facts.scaling(record), facts.gain(record), record.config.key(ignore=("data",))
        found["samples/s", key] = scaling.throughput_samples_per_s
        if scaling.efficiency is not None and not scaling.is_baseline:
            found["efficiency", key] = scaling.efficiency
        if gain is not None and record is not facts.headline:
            ends = gain.gain.again and (1 + gain.gain.again[0], 1 + gain.gain.again[1])
            found["gain", key] = Estimate(
                1 + gain.gain.value, 1 + gain.gain.low, 1 + gain.gain.high, gain.gain.n, again=ends
            )
    return found


if __name__ == "__main__":
    main()
