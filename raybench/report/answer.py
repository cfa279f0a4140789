"""The study's answer in plain words: one line, its clauses separated by semicolons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raybench.analysis.findings.finding import FindingName, Severity
from raybench.analysis.findings.verifications import Verified, verification_of
from raybench.analysis.labels import devices_words, weights_words
from raybench.analysis.objectives import OF_SPEED
from raybench.analysis.recommendation import Basis
from raybench.analysis.stats.verdict import Gain, Verdict
from raybench.report.advice import combined_words, crossover_words, larger_batch_words, short_combined_words
from raybench.report.finding_texts import next_step
from raybench.report.format import interval, percent, times
from raybench.report.sections.configurations import measured_words, verdict_cell
from raybench.report.sections.search import objectives_words
from raybench.report.sections.training import changed_words, parity_words, trained_words
from raybench.report.sections.trials import failures_words, missing_target, nothing_fits
from raybench.report.sections.waterfall import PART_WORDS, certain, shares_of_step
from raybench.spec.plural import plural

if TYPE_CHECKING:
    from raybench.analysis.choice import Best
    from raybench.analysis.curves import BatchPoint
    from raybench.analysis.findings.finding import Finding
    from raybench.analysis.findings.verifications import Verification
    from raybench.analysis.results import StudyResults

LEAST_SHARE = 0.01  # of a step; less is not worth a word
MUCH_UNTOLD = 0.1  # of a step: worth more rounds
SENTENCES_APART = ". "
MOST_CHANGES = 2  # proposals that the first screen has room for
MOST_TRAINED = 2  # changed settings whose training it has room for


def answer_of(results: StudyResults) -> str:
    """What the study found, whatever was and was not measured."""
    if not results.records:
        return "; ".join(nothing_fits(results)) or "nothing was measured"
    if not results.complete:
        return f"no trial completed: {failures_words(results.failed)}"
    weights, trained = filter(None, [weights_words(results.study)]), _training(results)
    if results.headline is None:
        return "; ".join([*weights, *_best(results), *trained]) or "no setting was measured"
    doubts = [
        *_under_load(results),
        *_trained_apart(results),
    ]
    if results.combined_effect is not None:  # of the default without them the report's box tells
        lost = [f"without them {words}" for words in _lost(results)]
        together = [short_combined_words(results.combined_effect), *missing_target(results), *lost]
        return "; ".join([*weights, *together, *_best(results), *doubts])
    steps = [*missing_target(results), _speed(results), *crossover_words(results), *_lost(results)]
    return "; ".join([*weights, *steps, *_best(results), *doubts, *trained])


def _under_load(results: StudyResults) -> list[str]:
    """What other processes took from the headline, where that is much."""
    headline = results.headline
    if headline is None:
        return []
    found = (
        each
        for each in results.diagnosis
        if each.name == FindingName.OTHER_PROCESSES and each.trial_id == headline.trial_id
    )
    where = f"{results.headline_label} on {devices_words(headline.config.world_size)}"
    return [
        f"{where} may be faster by up to {each.values['lost_ratio']:.0%} of its step: other processes took "
        f"{each.values['other_cores']:.2f} of {each.values['host_cores']:.0f} cores meanwhile"
        for each in found
        if each.severity is Severity.WARNING
    ]


def _trained_apart(results: StudyResults) -> list[str]:
    """Epochs of the headline that took another time than its steps say."""
    of_headline = (each for each in results.trained_times if each.record is results.headline)
    return [
        f"{trained_words(results, each)}: what a run takes and costs is told as trained"
        for each in of_headline
        if each.differs
    ]


@dataclass(frozen=True)
class Clause:
    """One thing that a reader asks, and the answer in words."""

    question: str
    words: str


def answer_box(results: StudyResults, left_out: Sequence[str] = ()) -> list[Clause]:
    """The same for the top of a page: does it scale, where the time goes, what to change, what that brings.

    ``left_out``: what was asked and not measured, in words.
    """
    late = [Clause("Left out", "; ".join(left_out))] if left_out else []
    if not results.records or not results.complete:
        return [Clause("Result", answer_of(results)), *late]
    clauses = _combined_clauses(results)
    if results.headline is not None:
        scales = [*missing_target(results), _speed(results), *crossover_words(results)]
        clauses.append(Clause("Scaling", "; ".join(scales)))
        clauses += [Clause("Lost", words.removeprefix("lost: ")) for words in _lost(results)]
        clauses += [Clause("What to change", words) for words in _to_change(results)]
    clauses += [Clause("Measured gain", words) for words in _best(results)]
    clauses += [
        Clause("Not sure", words)
        for words in (
            *_under_load(results),
            *_trained_apart(results),
        )
    ]
    clauses += [Clause("Goodput", words) for words in _goodput(results)]
    trained = [*filter(None, [weights_words(results.study)]), *_training(results)]
    clauses += [Clause("Training", "; ".join(trained))] if trained else []
    failed = [record for record in results.failed if record.request.kind != "probe"]
    clauses += [Clause("Failed", failures_words(failed))] if failed else []
    return [*clauses, *late] or [Clause("Result", answer_of(results))]


def _combined_clauses(results: StudyResults) -> list[Clause]:
    """What an ablation was asked: it comes first."""
    combined = results.combined_effect
    if combined is None:
        return []
    batch = larger_batch_words(combined)
    clauses = [Clause("All changes together", combined_words(combined))]
    return [*clauses, Clause("Its batch", batch)] if batch else clauses


def _to_change(results: StudyResults) -> list[str]:
    """What was measured to be faster, then what the first findings propose, each proposal once.

    A cause that may explain nothing proposes something only where nothing else does; of a study that loses
    little, nothing.
    """
    headline, scaling = results.headline, results.headline_scaling
    gained = _gained(results)
    doubted = [next_step(each) for each in results.diagnosis if each.comes_first]
    every = [each for each in results.diagnosis if each.explains is not None]
    sure = [each for each in every if each.explains is not None and each.explains.low > 0]
    causes = sure if sure or gained or doubted else every
    tests = [verification_of(each, results.verifications) for each in causes]
    left = [(each, test) for each, test in zip(causes, tests, strict=True) if not (test and test.ruled_out)]
    left = [(each, test) for each, test in left if not _is_part_of_gained(each, results)]
    left.sort(key=lambda one: one[1] is None or one[1].verdict is not Verified.CONFIRMED)
    named = [one for one in left if one[0].change is not None] or left
    steps = list(dict.fromkeys([*doubted, *gained, *(_change_words(each, test) for each, test in named)]))
    if steps:
        return ["; ".join(_without_repeats(steps[:MOST_CHANGES]))]
    if headline is None or headline.config.world_size == 1:
        return []
    broken = [test for test in tests if test is not None and test.verdict is Verified.FAILED]
    if broken:
        return [f"not known: what the findings propose could not be measured ({broken[0].reason})"]
    if causes:
        return ["nothing: what the findings propose was tried and is no gain"]
    if scaling is None or scaling.efficiency is None:
        return ["not known: without an efficiency no loss can be told"]
    return ["nothing: no loss is large and certain enough to act on"]


def _gained(results: StudyResults) -> list[str]:
    """The setting that is recommended, where it is surely faster than the default."""
    use = results.recommendation
    if use is None or use.gain is None or use.basis not in (Basis.BETTER, Basis.VERIFIED):
        return []
    return [f"{use.label}: {percent(use.gain.gain, sign=True)} samples/s, measured"]


def _is_part_of_gained(finding: Finding, results: StudyResults) -> bool:
    """Whether the recommended setting, which is named before it, has all that the finding would change."""
    change, use = finding.change, results.recommendation
    return bool(change and use and _gained(results) and use.config.has(change))


def _without_repeats(steps: Sequence[str]) -> list[str]:
    """Each sentence where it is said first: two causes may have one larger batch as their next step."""
    said, kept = set[str](), []
    for step in steps:
        sentences = [each for each in step.split(SENTENCES_APART) if each not in said]
        said.update(sentences)
        kept += [SENTENCES_APART.join(sentences)] if sentences else []
    return kept


def _change_words(finding: Finding, test: Verification | None) -> str:
    if test is None or test.gain is None:
        return next_step(finding)
    return f"{next_step(finding)} ({verdict_cell(test)}, {measured_words(test)} samples/s)"


def _goodput(results: StudyResults) -> list[str]:
    """Useful samples: the most of any batch, the headline's and the recommended setting's.

    Empty where no noise scale was measured.
    """
    training = results.training
    most = training.most_goodput if training is not None else None
    if training is None or most is None:
        return []
    if not training.is_scaled:
        return [
            "not known, as the learning rate does not grow with the batch (training.learning_rate_scaling): "
            "the table has its bounds"
        ]
    words = (
        f"most at {results.label(most.record)} on {devices_words(most.record.config.world_size)}: "
        f"{interval(most.goodput_samples_per_s)} useful samples/s, counted in those of the reference batch "
        f"{training.reference_batch:,}, of {interval(most.throughput_samples_per_s)}"
    )
    if training.num_as_good:
        others = plural(len(training.goodput) - 1, "other")
        words += f" (not told apart from {training.num_as_good:,} of {others})"
    headline = results.headline
    own = next((each for each in training.goodput if headline and each.record is headline), None)
    if own is not None and own is not most:
        words += f"; the default has {interval(own.goodput_samples_per_s)}"
    use, of_use = results.recommendation, results.used_goodput
    if use is not None and of_use is not None and of_use.used is not most:
        words += f"; {use.label} on {devices_words(use.config.world_size)} has "
        words += interval(of_use.used.goodput_samples_per_s)
        if of_use.ratio is not None:
            slower = ": faster steps, and slower learning" if of_use.ratio.high < 1 else ""
            words += f", {times(of_use.ratio)} the default's{slower}"
    return [words]


def _speed(results: StudyResults) -> str:
    """The headline's speed-up, and the other end of the batches."""
    headline, scaling = results.headline, results.headline_scaling
    assert headline is not None
    assert scaling is not None
    config = headline.config
    mark = "oversubscribed, so not to be relied on: " if config.oversubscribed else ""
    of_all = "global " if config.scaling == "strong" else ""
    at = f"at {of_all}batch {config.setting.batch_size:,}"
    devices = devices_words(config.world_size)
    rate = f"{interval(scaling.throughput_samples_per_s)} samples/s"
    if config.world_size == 1:
        alone = "" if results.target_world_size > 1 else "; one device only, so nothing to scale over"
        return f"{mark}{devices}: {rate} {at}{alone}"
    if scaling.speedup is None or scaling.baseline is None:
        return f"{mark}{devices}: {rate} {at}, with no smaller world size to compare with"
    over = "" if scaling.baseline.world_size == 1 else f" over {devices_words(scaling.baseline.world_size)}"
    words = f"{mark}{devices}: {times(scaling.speedup)}{over} {at}"
    others = [
        f"{times(point.speedup)} at {of_all}batch {point.batch_size:,}" for point in _further_batches(results)
    ]
    return ", ".join([words, *others])


def _further_batches(results: StudyResults) -> list[BatchPoint]:
    """The other batch of the headline's setting that lies furthest from the headline's speed-up."""
    assert results.headline is not None
    here = results.headline.config.setting.batch_size
    points = [
        point
        for curve in results.batch_curves
        if curve.is_headline
        for point in curve.points
        if point.batch_size != here
    ]
    if not points or results.headline_scaling is None or results.headline_scaling.speedup is None:
        return []
    speedup = results.headline_scaling.speedup.value
    return [max(points, key=lambda point: abs(point.speedup.value - speedup))]


def _lost(results: StudyResults) -> list[str]:
    """All that is lost, as shares of the step: the certain parts, the largest first, and the rest."""
    waterfall = results.waterfall
    if waterfall is None or waterfall.world_size == 1:
        return []
    shares = shares_of_step(waterfall)
    shares.pop(PART_WORDS["ideal"], None)
    total, sure = sum(part.value for part in shares.values()), certain(shares, LEAST_SHARE)
    if not shares or total < LEAST_SHARE:
        return ["nothing lost that could be measured"]
    rest = total - sum(share.value for _, share in sure)
    if not sure:
        more = _more_rounds(results, total)
        return [f"lost: {total:.0%} of the step, in parts that the intervals do not tell from 0{more}"]
    words = [f"{share.value:.0%} {name}" for name, share in sure]
    if rest >= LEAST_SHARE:
        words.append(f"{rest:.0%} the rest, not told apart{_more_rounds(results, rest)}")
    of = f"{total:.0%} of the step: " if len(words) > 1 or rest <= -LEAST_SHARE else ""
    if rest <= -LEAST_SHARE:
        words.append(f"{rest:.0%} the rest, measured below 0")
    return [f"lost: {of}{', '.join(words)}"]


def _more_rounds(results: StudyResults, rest: float) -> str:
    """What would tell a large rest apart, where the rounds were ended by the clock."""
    steps = results.headline.steps if results.headline else None
    if steps is None or steps.stopped_by != "max_seconds" or rest < MUCH_UNTOLD:
        return ""
    number = plural(len(steps.rounds), "round")
    return f" ({number}: more of them need a larger measure.max_seconds or --time-budget)"


def _best(results: StudyResults) -> list[str]:
    """The best setting, and how sure it is that it is better than the default."""
    best = results.best
    if best is None:
        return []
    size, objectives = best.record.config.world_size, results.study.search.objectives
    where = "" if size == results.target_world_size else f" on {devices_words(size)}"
    among = f"{_among(best)}{where}: {results.best_label}"
    if best.is_default:
        return [among]
    gain = results.gain(best.record)
    if gain is None:
        rate = interval(results.scaling(best.record).throughput_samples_per_s)
        failure = results.default_failure
        why = f", which has no numbers itself ({failure.state})" if failure else ""
        return [f"{among}, {rate} samples/s, not held against the default{why}"]
    amount = percent(gain.gain, sign=True)
    if not OF_SPEED.issuperset(objectives):  # what is slower may be what was asked for
        chosen = f"{among}, chosen for {objectives_words(objectives)}"
        return [f"{chosen}: {amount} samples/s against the default"]
    return [f"{among}, {amount} samples/s over the default{verdict_words(gain)}{_simpler(results)}"]


def verdict_words(gain: Gain) -> str:
    """What follows from a gain that is not shown: empty where it is."""
    if gain.verdict is Verdict.AS_GOOD:
        return ": as good, so keep the default"
    if gain.verdict is Verdict.UNKNOWN:
        more = f"; about {gain.to_tell} times as many visits would tell" if gain.to_tell else ""
        return f": not known yet, so keep the default{more}"
    return ""


def _simpler(results: StudyResults) -> str:
    use = results.recommendation
    if use is None or use.simpler_than is None or use.gain is None:
        return ""
    return f"; {use.label} is simpler and not shown to be slower ({percent(use.gain.gain, sign=True)})"


def _among(best: Best) -> str:
    """Of how many settings it is the best, and that others have no numbers."""
    if not best.num_failed:
        return f"best of {best.num_suggestions:,}"
    measured = best.num_suggestions - best.num_failed
    words = f"{measured:,} of {plural(best.num_suggestions, 'setting')} could be measured"
    return f"{words}, the best of these" if measured > 1 else words


def _training(results: StudyResults) -> list[str]:
    """Whether several devices reach the accuracy of one: of the largest world size, its first strategy."""
    training = results.training
    if training is None:
        return []
    if training.comparisons:
        most = max(training.comparisons, key=lambda each: each.group.world_size)
        told = results.combined_effect.trained if results.combined_effect else None  # with all changes
        changed = [
            each
            for each in training.changed
            if each.group.world_size == most.group.world_size and each is not told
        ]
        learned = [each for each in changed if each.group.stopped_by is None]
        verdicts = [parity_words(most), *(changed_words(each) for each in learned[:MOST_TRAINED])]
        if rest := len(changed) - min(len(learned), MOST_TRAINED):
            stopped = len(changed) - len(learned)
            early = f", {stopped} of them stopped early" if stopped else ""
            verdicts.append(f"{rest} more settings in the table of trainings{early}")
        return [f"trained {plural(most.group.num_epochs, 'epoch')}: {', and '.join(verdicts)}"]
    group = training.groups[0]
    accuracy = group.final_accuracy
    words = f"{devices_words(group.world_size)} trained {plural(group.num_epochs, 'epoch')}"
    return [words if accuracy is None else f"{words}: test accuracy {accuracy.value:.1%}"]
