"""The study's answer: a sentence or two each on scaling, why, what to change, more devices, trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raybench.analysis.choice import is_default
from raybench.analysis.findings.finding import Finding, FindingName, Reason, Severity
from raybench.analysis.findings.verifications import Verified, verification_of
from raybench.analysis.labels import devices_of, difference_words, weights_words
from raybench.analysis.objectives import OF_SPEED
from raybench.analysis.recommendation import Recommendation
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import Verdict
from raybench.records.record import TrialRecord
from raybench.report.finding_texts import next_step
from raybench.report.format import aligned, figures, sentence
from raybench.report.prediction import more_sentences
from raybench.report.sections.training import changed_words, named_group, parity_words
from raybench.report.sections.trials import failures_words, nothing_fits
from raybench.report.sections.waterfall import PART_WORDS, shares_of_step
from raybench.report.table import known
from raybench.spec.plural import plural

SMOKE = "Smoke run: a small model for a short time. It tests the tool and is not a result."
FRAGMENTS = ("Failed", "Left out")  # questions whose answers are no sentences
WIDEST = 2.0  # the ends of a speed-up's interval differ by more: it says nothing
LEAST_SHARE = 0.01  # of a step; less is not worth a word
MUCH_OFFSET = 0.03  # of a step, or a tenth of what is lost: the parts named are more than that
MUCH_UNKNOWN = 0.1  # of a step: worth more rounds
MOST_PARTS = 2  # of what is lost
MOST_SENTENCES = 2  # on one question
MOST_NAMED = 3  # of settings
COMMUNICATION = PART_WORDS["exposed_communication"]
IN_ANSWER = {PART_WORDS["skew"]: "waiting for the slowest rank", PART_WORDS["wrapper"]: "the wrapper"}


@dataclass(frozen=True)
class Clause:
    """One thing that a reader asks, and the answer in words."""

    question: str
    words: str

    @property
    def line(self) -> str:
        """The words where nothing else says what they answer."""
        return f"{self.question}: {self.words}" if self.question in FRAGMENTS else self.words


def answer_of(results: StudyResults) -> str:
    """The whole answer in one line."""
    return " ".join(each.line for each in answer(results))


def answer(results: StudyResults, left_out: Sequence[str] = ()) -> list[Clause]:
    """What the study found, whatever was and was not measured.

    ``left_out``: what was requested and not measured, in words.
    """
    note = [SMOKE] if results.study.is_smoke else []
    clauses: dict[str, Sequence[str]] = {"Note": note, **_found(results), "Left out": left_out}
    return [Clause(question, _sentences(words)) for question, words in clauses.items() if words]


def _found(results: StudyResults) -> dict[str, list[str]]:
    """What there is to say on each question."""
    if not results.records:
        return {"Result": nothing_fits(results) or ["nothing was measured"]}
    if not results.complete:
        return {"Result": [f"no trial completed: {failures_words(results.failed)}"]}
    failed = [record for record in results.failed if record.request.kind != "probe"]
    clauses = {
        "Weights": [*filter(None, [weights_words(results.study)])],
        "Scaling": _scaling(results),
        "Why": _why(results),
        "What to change": _to_change(results)[:MOST_SENTENCES],
        "More devices": _more(results),
        "Training": _training(results),
        "Trust": _trust(results),
        "Failed": [failures_words(failed)] if failed else [],
    }
    return clauses if any(clauses.values()) else {"Result": ["no setting was measured"]}


def _sentences(words: Sequence[str]) -> str:
    """Each with a capital and a full stop; none begins with a value, such as bf16."""
    return " ".join(each if each[-1] in ".!?" else f"{each}." for each in map(sentence, words))


# --- how well does it scale


def _scaling(results: StudyResults) -> list[str]:
    """The headline's speed-up, and where more devices do not pay."""
    headline, scaling = results.headline, results.headline_scaling
    if headline is None or scaling is None:
        return []
    config, target = headline.config, results.target_world_size
    steps = [] if config.world_size == target else [f"no trial completed on {results.devices(target)}"]
    if config.oversubscribed:
        steps = ["workers share cores here, so the figures say nothing of devices of their own"]
    batch = f"{config.setting.batch_size:,}"
    at = f"at global batch {batch}" if config.scaling == "strong" else f"at batch {batch} per device"
    many, size = devices_of(config), config.world_size
    if not is_default(results.study, config):  # which has no figures
        many = f"with {difference_words(results.study, config)}, {many}"
    verb = "trains" if size == 1 else "train"
    rate = f"{many} {verb} {figures(scaling.throughput_samples_per_s.value)} samples/s {at}"
    if size == 1:
        alone = f"with one {results.device_word} there is nothing to scale over"
        return [*steps, rate, *([alone] if target == 1 else [])]
    speedup, efficiency = scaling.speedup, scaling.efficiency
    if speedup is None or efficiency is None or scaling.baseline is None:
        return [*steps, rate, "no smaller number of devices was measured to compare with"]
    base = scaling.baseline.world_size
    few = "one" if base == 1 else f"{base:,}"
    if _is_too_wide(speedup):
        _, low, high = aligned(speedup.value, speedup.low, speedup.high)
        says = "" if speedup.excludes(1) else ", which is too wide to go by"
        wide = f"{many} train {low} to {high} times as fast as {few}"
        if steps:
            return [*steps, f"{wide} {at}{says}"]
        return [f"{wide}{says}", f"this is {at}, and more visits (`measure.visits`) narrow it"]
    only = "only " if speedup.high < 1 else ""
    fast = f"{many} train {only}{speedup.value:.2f} times as fast as {few}"
    above = ", which is superlinear" if efficiency.low > 1 else ""
    share = f", with {efficiency.value:.0%} efficiency{above}"
    if steps:
        return [*steps, f"{fast} {at}{share}"]
    others = _other_batches(results, headline, "also " if only else "") if base == 1 else ""
    where = f"this is {at}{f', and {others}' if others else ''}"
    return [f"{fast}{share}", where]


def _is_too_wide(speedup: Estimate) -> bool:
    return speedup.high > WIDEST * max(speedup.low, 0.0)


def _other_batches(results: StudyResults, headline: TrialRecord, also: str) -> str:
    """At which other batches more devices are slower than one, and the next at which they are not."""
    question = headline.config.key(ignore=("batch_size",))
    over_one = {
        record.config.setting.batch_size: speedup
        for record in results.references
        if record is not headline and record.config.key(ignore=("batch_size",)) == question
        if (speedup := results.scaling(record).over_one) is not None
    }
    slower = sorted(batch for batch, speedup in over_one.items() if speedup.high < 1)
    if not slower:
        return ""
    faster = [batch for batch, speedup in over_one.items() if speedup.low >= 1 and batch > slower[-1]]
    above = f", but not at {min(faster):,}" if faster else ""
    every = " and ".join(f"{batch:,}" for batch in slower)
    return f"they are {also}slower at {'batches' if len(slower) > 1 else 'batch'} {every}{above}"


# --- why not better


def _why(results: StudyResults) -> list[str]:
    """The share of the step that is lost, the parts of it that are certain, and communication in any case."""
    waterfall, scaling = results.waterfall, results.headline_scaling
    if waterfall is None or waterfall.world_size == 1:
        return []
    if scaling is not None and scaling.speedup is not None and _is_too_wide(scaling.speedup):
        return []
    shares = {IN_ANSWER.get(name, name): share for name, share in shares_of_step(waterfall).items()}
    shares.pop(PART_WORDS["ideal"], None)
    total, communication = sum(part.value for part in shares.values()), shares.get(COMMUNICATION)
    if not shares or total < LEAST_SHARE:
        is_offset = communication is not None and communication.low >= LEAST_SHARE
        words = "as parts offset each other" if is_offset else "that could be measured"
        return [f"nothing is lost {words}", *_communication_words(communication)]
    sure = [
        (name, share)
        for name, share in sorted(shares.items(), key=lambda each: -each[1].value)
        if name != PART_WORDS["undivided"] and share.low > 0 and share.value >= LEAST_SHARE
    ]
    least = "at least " if waterfall.parts.ideal is None else ""
    lost, rest = f"{least}{total:.0%} of each step is lost", total - sum(share.value for _, share in sure)
    named = [*sure[:1], *sorted(sure[1:], key=lambda each: each[0] != COMMUNICATION)][:MOST_PARTS]
    parts = [f"{share.value:.0%} to {name}" for name, share in named]
    undivided = shares.get(PART_WORDS["undivided"])  # which no time divides further
    more = _more_rounds(results, rest - (undivided.value if undivided else 0.0))
    unsure = None if COMMUNICATION in dict(sure) else communication
    # both about as large: else its own bound says more
    may_be_rest = unsure is not None and 0 < len(sure) <= MOST_PARTS and rest <= unsure.high <= 1.5 * rest
    if COMMUNICATION not in dict(named) and not may_be_rest:
        more = [*_communication_words(communication), *more]
    also = [", and ".join(more)] if more else []
    if not sure:
        among = ", communication among them" if communication is None else ""
        return [f"{lost}, to causes that the measurement does not separate{among}", *also]
    left = total - sum(share.value for _, share in named)
    if left < -max(LEAST_SHARE, min(MUCH_OFFSET, total / 10)):
        parts.append("partly offset by other parts")
    elif len(sure) > MOST_PARTS and left >= LEAST_SHARE:
        parts.append(f"the rest to other parts{' and unknown causes' if rest >= LEAST_SHARE else ''}")
    elif rest >= LEAST_SHARE:
        parts.append("the rest may be communication" if may_be_rest else "the rest unexplained")
    whole = len(parts) == 1 and f"{named[0][1].value:.0%}" == f"{total:.0%}"
    return [f"{lost} to {named[0][0]}" if whole else f"{lost}: {', '.join(parts)}", *also]


def _communication_words(share: Estimate | None) -> list[str]:
    """Between what communication is, where it is not among the certain parts."""
    if share is None:
        return []
    if share.high < LEAST_SHARE:
        return [f"communication is less than {LEAST_SHARE:.0%}"]
    if share.low < LEAST_SHARE:
        return [f"communication is at most {share.high:.0%}"]
    return [f"communication is {100 * share.low:.0f} to {share.high:.0%}"]


def _more_rounds(results: StudyResults, rest: float) -> list[str]:
    """What would separate a large rest, where the rounds were ended by the clock."""
    headline, is_busy = results.headline, _load_of_headline(results) is not None  # which comes first
    if headline is None or headline.steps is None or headline.request.kind != "steps" or is_busy:
        return []
    if headline.steps.stopped_by != "max_seconds" or rest < MUCH_UNKNOWN:
        return []
    # by a time budget, which makes rounds shorter and none longer
    is_cut = headline.request.measure.max_seconds < results.study.measure.max_seconds
    return [f"a larger {'--time-budget' if is_cut else 'measure.max_seconds'} would separate the parts"]


# --- what to change


def _to_change(results: StudyResults) -> list[str]:
    """What was measured to be faster; else what the first cause proposes that is not ruled out."""
    fewer = fewer_words(results)
    choice = _choice(results, after_fewer=bool(fewer))
    return [*_wrong_losses(results), *fewer, *choice, *_proposal(results)]


def _wrong_losses(results: StudyResults) -> list[str]:
    """Which settings are not to be used, whatever their speed."""
    wrong = {each.named["strategy"] for each in results.diagnosis if each.name is FindingName.LOSSES_DISAGREE}
    which = " or ".join(sorted(wrong)) if len(wrong) <= MOST_NAMED else f"any of {len(wrong)} settings"
    return [f"do not use {which}: losses or the first gradient differ from one device's"] if wrong else []


def _shown_faster(results: StudyResults) -> Recommendation | None:
    """The setting to use, where it was measured to be faster than the default."""
    use = results.recommendation
    return use if use is not None and use.is_faster else None


def _choice(results: StudyResults, *, after_fewer: bool) -> list[str]:
    """``after_fewer``: it stands after the advice to use fewer devices."""
    best, number, use = results.best, len(results.sound), _shown_faster(results)
    default = results.default if results.default in results.sound else None
    if use is not None and use.gain is not None:
        many = devices_of(use.config)
        fast = f"{1 + use.gain.gain.value:.2f} times the default's speed"
        if after_fewer:
            return [f"on {many} {use.label} is {fast}{_less_accurate(results, use)}"]
        found = (results.scaling(each) for each in results.measured if each.config == use.config)
        is_unsure = any(each.one_device and each.speedup and not each.speedup.excludes(1) for each in found)
        several = f"{many}, which are not shown to be faster than one" if is_unsure else many
        return [f"use {use.label}: {fast} on {several}{_less_accurate(results, use)}"]
    if best is None:
        return []
    there = f"on {devices_of(best.config)} " if after_fewer else ""
    keep = f"{there}keep the default ({results.label(default or best)})"
    among = f"best of {plural(number, 'measured setting')}"
    if best is default:
        return [f"{keep}: {'no other has figures to use' if number == 1 else f'it is the {among}'}"]
    gain, search = results.gain(best), results.study.search
    if gain is None or default is None:
        rate = f"{figures(results.scaling(best).throughput_samples_per_s.value)} samples/s"
        return [f"the {among} is {results.best_label}, at {rate}, and the default has no figures to use"]
    if not OF_SPEED.issuperset(search.objectives):  # what is slower may be what was requested
        among += f" for {' and '.join(search.objectives).replace('_', ' ')}"
        if not results.is_best_better:
            return [f"{keep}: {results.best_label}, the {among}, is not shown to be better"]
        rate = f"{1 + gain.gain.value:.2f} times the default's samples/s"
        if len(results.chosen) > 1:
            first, *others = (name.replace("_", " ") for name in search.objectives)
            both = f"none is best in {first} and {' and '.join(others)} at once"
            return [f"{both}: {results.best_label} is the best of {number} in {first}, at {rate}"]
        return [f"the {among} is {results.best_label}, at {rate}"]
    if gain.verdict is Verdict.AS_GOOD:
        return [f"{keep}: {results.best_label}, the {among}, is as good"]
    more = f", and about {gain.to_tell} times as many visits would tell" if gain.to_tell else ""
    faster = f"is not known to be faster by {search.minimum_gain:.0%}{more}"
    return [f"{keep}: {results.best_label}, the {among}, {faster}"]


def _less_accurate(results: StudyResults, use: Recommendation) -> str:
    """That the setting to use learned less than the default, by more than the test samples' noise."""
    changed = results.training.changed if results.training else ()
    of_use = (each for each in changed if use.config.same_setting(each.group.config))
    lost = (-each.difference_points.value - each.noise_points for each in of_use if each.difference_points)
    return ", and it is less accurate" if max(lost, default=0.0) > 0 else ""


def fewer_words(results: StudyResults) -> list[str]:
    """That fewer devices are faster than all of them with the setting to use."""
    advice, use = results.device_advice, results.recommendation
    if advice is None:
        return []
    few, size = advice.config, advice.config.world_size
    label, is_changed = difference_words(results.study, few), use is not None and not use.is_default
    which = f"one {results.device_word}" if size == 1 else devices_of(few)
    having = "" if is_default(results.study, few) else f" with {label}"
    meanwhile = ""
    if advice.ratio.value > 1 - _shorter_share(results):
        again = "" if is_changed else ", and measure again without them"
        meanwhile = f" while other programs run{again}"
    of_more = f"with {use.label} " if use is not None and is_changed and use.label != label else ""
    than = "" if size == 1 else f" as {size:,}"
    than += " with rare slow steps included" if advice.is_of_mean else ""
    why = f": {of_more}{advice.more:,} are {advice.ratio.value:.2f} times as fast{than}"
    is_told = size == 1 and not is_changed and not advice.is_of_mean  # by the first sentence
    return [f"use {which}{having}{meanwhile}{'' if is_told else why}"]


def to_use(results: StudyResults) -> Recommendation | None:
    """The recommended setting, on fewer devices where that is the advice.

    None where it is the default, and that has completed on fewer devices only than were asked for.
    """
    use, advice = results.recommendation, results.device_advice
    if use is None or (use.is_default and results.compared_at != results.target_world_size):
        return None
    if advice is None:
        return use
    label = difference_words(results.study, advice.config)
    return replace(use, config=advice.config, label=label, nodes=advice.nodes, gain=None)


def _proposal(results: StudyResults) -> list[str]:
    """What the first cause proposes that is neither ruled out nor part of the setting to use."""
    headline, use = results.headline, _shown_faster(results)
    if headline is None:
        return []
    own = [each for each in results.diagnosis if each.trial_id == headline.trial_id]
    every = [each for each in own if each.explains is not None or each.severity is not Severity.NOTE]
    sure = [each for each in every if each.explains is None or each.explains.low > 0]
    among = sure or (every if use is None else [])
    tests = [(each, verification_of(each, results.verifications)) for each in among]
    changed = use.config.setting.differences(headline.config.setting).keys() if use is not None else set()
    left = [
        (each, test)
        for each, test in tests
        if test is None or test.verdict not in (Verified.REFUTED, Verified.FAILED)
        if changed.isdisjoint({"strategy", *(each.change or ())})
    ]
    left.sort(key=lambda one: one[1] is None or one[1].verdict is not Verified.CONFIRMED)
    if use is not None:  # the causes are of the default, which the setting to use may have cured
        left = [one for one in left if one[1] is not None and one[1].verdict is Verified.CONFIRMED]
    changing = [one for one in left if one[0].change is not None] or left
    if changing:
        finding, test = changing[0]
        gain = test.gain.gain.value if test and test.gain else None
        tested = "" if test is None or gain is None else f", {test.verdict} at {1 + gain:.2f} times as fast"
        return [f"to try: {next_step(finding)}{tested}"]
    scaling = results.headline_scaling
    is_known = scaling is not None and scaling.efficiency is not None and not scaling.is_baseline
    if use is not None or results.best is not None or not is_known:
        return []
    if tests:
        return ["nothing: the changes that the causes propose were tried, and failed or are not faster"]
    is_late = any(each.name is FindingName.NOT_REACHED for each in results.diagnosis)
    if is_late and results.study.knobs.explored():
        return ["not known yet: no other setting was measured"]
    return ["nothing: no loss is large and certain enough to act on"]


# --- how far to trust it

# What made the headline's machine slower, but for other processes, of which there are figures.
SLOWED: Mapping[FindingName | Reason | None, str] = {
    FindingName.THROTTLING: "GPUs throttled",
    Reason.QUOTA: "a CPU quota ran out",
    FindingName.STILL_WARMING: "GPUs were still warming up",
}


def _trust(results: StudyResults) -> list[str]:
    """What another run would find, and what made this one slower."""
    headline, scaling, load = results.headline, results.headline_scaling, _load_of_headline(results)
    if headline is None or scaling is None:
        return []
    use = results.recommendation
    of = "" if use is None or use.is_default else f" of {difference_words(results.study, headline.config)}"
    run = f"another run{of}"  # under the same load, of which the next sentence is
    efficiency, rate, words = scaling.efficiency, scaling.throughput_samples_per_s, list[str]()
    if efficiency is not None and efficiency.again is not None:
        words = [f"expect {100 * efficiency.again[0]:.0f} to {efficiency.again[1]:.0%} efficiency in {run}"]
    elif rate.again is not None:
        _, low, high = aligned(rate.value, *rate.again)
        words = [f"expect {low} to {high} samples/s in {run}"]
    slowed = [SLOWED[key] for each in results.diagnosis for key in (each.name, each.reason) if key in SLOWED]
    slowed += [] if load is None else [_load_words(results, load)]
    return [*words, ", and ".join(slowed)] if slowed else words


def _load_of_headline(results: StudyResults) -> Finding | None:
    """That other processes took much from the headline."""
    loads = (each for each in results.diagnosis if each.name == FindingName.OTHER_PROCESSES)
    return next((each for each in loads if each.severity is Severity.WARNING), None)


def _shorter_share(results: StudyResults) -> float:
    """How much of the headline's step other processes may be: no more than is lost; 0 without a load."""
    load, scaling = _load_of_headline(results), results.headline_scaling
    if load is None or scaling is None:
        return 0.0
    lost = max(1 - scaling.efficiency.value, 0.0) if scaling.efficiency else 1.0
    return min(load.values["lost_ratio"], lost)


def _load_words(results: StudyResults, load: Finding) -> str:
    """What other processes took, and whether that may turn the answer."""
    taken, cores = (load.values[name] for name in ("other_cores", "host_cores"))
    share, scaling = _shorter_share(results), results.headline_scaling
    without = f"a step may be up to {share:.0%} shorter" if share >= 0.005 else ""
    speedup = scaling.speedup if scaling else None
    if speedup is not None and speedup.high < 1 and speedup.value > 1 - share:
        without = f"{results.devices(results.compared_at)} may beat one"
    less = f": without them {without}" if without else ""
    return f"other processes took {taken:.2f} of {cores:.0f} cores{less}"


# --- what more devices would bring


def _more(results: StudyResults) -> list[str]:
    """Of the headline's setting, where that is not the one to use."""
    found, use, headline = more_sentences(results.more_devices), results.recommendation, results.headline
    if not found or headline is None:
        return []
    of = "" if use is None or use.is_default else f"with {difference_words(results.study, headline.config)}"
    return [f"{of}, {found[0]}", *found[1:]] if of else found


# --- what was trained


def _training(results: StudyResults) -> list[str]:
    """Whether several devices reach the accuracy of one: of the largest world size, its first strategy.

    Also what the setting to use has learned; where that is the default, what the others have.
    """
    training, use = results.training, _shown_faster(results)
    if training is None:
        return []
    grew = " and on ".join(named_group(each) for each in training.groups if each.diverged)
    words = [f"training diverged on {grew}: its loss grew"] if grew else []
    if use is not None and not any(use.config.same_setting(each.config) for each in training.groups):
        words.append(f"accuracy with {use.label}, the setting to use, was not measured")
    if training.comparisons:
        most = max(training.comparisons, key=lambda each: each.group.world_size)
        words.append(parity_words(most))
        words += [
            changed_words(each)
            for each in training.changed
            if each.group.world_size == most.group.world_size and each.group.stopped_by is None
            if use is None or use.config.same_setting(each.group.config)
        ]
        return words[:MOST_SENTENCES]
    group = training.groups[0]
    trained = f"{devices_of(group.config)} trained {plural(len(group.epochs), 'epoch')}"
    accuracy = known(group.final_accuracy, lambda share: f": test accuracy {share.value:.1%}", "")
    return [*words, f"{trained}{accuracy}"][:MOST_SENTENCES]
