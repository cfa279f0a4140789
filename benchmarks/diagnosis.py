"""Does the diagnosis name what was planted? Simulated studies with one or two known causes, and without any.

Each study stands on a machine that is sound but for its causes, with noise as on quiet cores; the first
finding of the report must be the larger cause. Prints for each cause what was named first instead, and how
many sound studies were called faulty.

    python -m benchmarks.diagnosis --studies 200
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Sequence

from scipy.stats import beta

from raybench.analysis.findings.finding import Finding
from tests.support.planted.causes import CAUSES, PlantedCause, faults, simulate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=200, help="with causes, and as many without")
    parser.add_argument("--seed", type=int, default=0, help="of the first study")
    parser.add_argument("--louder", type=float, default=1.0, help="noise, in times of that of quiet cores")
    options = parser.parse_args()
    singles = [(cause,) for cause in CAUSES]
    pairs = [
        pair
        for pair in itertools.permutations([cause for cause in CAUSES if cause.pairs], 2)
        if len({_place(cause) for cause in pair}) == 2
    ]
    # two studies with one cause to each with two
    half = options.studies * 2 // 3
    plan: list[Sequence[PlantedCause]] = [singles[number % len(singles)] for number in range(half)]
    plan += [pairs[number % len(pairs)] for number in range(options.studies - half)]
    named: dict[str, Counter[str]] = {}
    both = two = right = 0
    for number, causes in enumerate(plan):
        results, truth = simulate(causes, options.seed + number, louder=options.louder)
        claimed = faults(results.diagnosis)
        first = claimed[0] if claimed else None
        named.setdefault(_words(causes[0]), Counter())[_claim(first)] += 1
        right += first is not None and causes[0].is_named_by(first)
        if len(causes) > 1:
            two += 1
            both += set(truth) <= {each.name for each in claimed}
    _print_table(named)
    print(f"\nthe first finding is right in {_share(right, len(plan))}")
    print(f"of the studies with two causes both are named in {_share(both, two)}")
    alarms: Counter[str] = Counter()
    for number in range(options.studies):
        sound, _ = simulate((), options.seed + 10_000 + number, louder=options.louder)
        claimed = faults(sound.diagnosis)
        alarms[_claim(claimed[0] if claimed else None)] += 1
    share = _share(alarms["nothing"], options.studies)
    print(f"of the sound studies nothing is claimed in {share}: {dict(alarms)}")


def _claim(found: Finding | None) -> str:
    """A finding by its name, and its reason where it has several."""
    if found is None:
        return "nothing"
    return f"{found.name}: {found.reason.replace('_', ' ')}" if found.reason else str(found.name)


def _place(cause: PlantedCause) -> str:
    """What can be planted once: a link is slow for one reason."""
    return "link" if "bound" in cause.name and "data" not in cause.name else str(cause.name)


def _words(cause: PlantedCause) -> str:
    return f"{cause.name} ({cause.kind})" if cause.kind else str(cause.name)


def _print_table(named: dict[str, Counter[str]]) -> None:
    print("| planted, the larger one | studies | named first |")
    print("| --- | --- | --- |")
    for words, counts in sorted(named.items()):
        found = ", ".join(f"{name} {number}" for name, number in counts.most_common())
        print(f"| {words} | {sum(counts.values())} | {found} |")


def _share(hits: int, number: int) -> str:
    """A share with its Clopper-Pearson interval."""
    low = float(beta.ppf(0.025, hits, number - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, number - hits)) if hits < number else 1.0
    return f"{hits} of {number}: {hits / max(number, 1):.1%} [{low:.1%}, {high:.1%}]"


if __name__ == "__main__":
    main()
