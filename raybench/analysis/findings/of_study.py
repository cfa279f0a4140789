"""Findings on a study: failures, what was not reached, gains, and measurements that disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Self

from raybench.analysis.failures import alike
from raybench.analysis.findings.case import OfStudy, WholeStudy, programs_words, stoppable, taken_by_others
from raybench.analysis.findings.configurations import compared
from raybench.analysis.findings.finding import Evidence, FindingName, NextStep, Severity, factor, pct, rate
from raybench.analysis.labels import devices_words, label, trial_words
from raybench.analysis.load import Disagreement, Reading, UnderLoad, load_words
from raybench.analysis.objectives import OF_SPEED
from raybench.analysis.reference import InSameRounds, rate_ratio, same_devices
from raybench.analysis.search import Confirmation
from raybench.analysis.stats.efficiency import Verdict
from raybench.analysis.stats.repeated import MOST_AGAIN, times_before
from raybench.analysis.stats.statistics import Estimate, inverse
from raybench.records.record import State, TrialRecord
from raybench.spec.counted import counted

MOST_NAMED = 1  # trials of one cause
GOES_ON = "--resume --output DIR"
MORE_TIME = 2.0  # times the time-out that was not enough


def command_to_go_on(whole: WholeStudy, *also: State) -> str:
    """One command for all that failed or is missing: what may end otherwise is tried again, and the rest.

    Memory that was not enough is not enough again, so it is in it where nothing is complete, or asked
    for (``also``).
    """
    failed, tries = whole.results.failed, list[State](("crashed", "timeout", *also))
    if not whole.results.complete:
        tries.append("oom")
    states = [each for each in dict.fromkeys(tries) if any(record.state == each for record in failed)]
    words = [whole.around.goes_on or GOES_ON]
    words += [f"--retry {','.join(states)}"] if states else []
    longest_s = dict[str, float]()  # by the field that says how long
    for record in failed:
        if record.state == "timeout":
            request = record.study_request
            field = f"{'training' if request.kind == 'training' else 'measure'}.timeout_seconds"
            longest_s[field] = max(longest_s.get(field, 0.0), request.timeout_s)
    words += [f"--set {field}={MORE_TIME * longest:g}" for field, longest in longest_s.items()]
    return " ".join(words)


# of each way to end without figures: the finding, and what to do
FAILED: Mapping[State, tuple[FindingName, str]] = {
    "crashed": (FindingName.CRASHED, "mend it, then try what crashed again, and the rest"),
    "timeout": (FindingName.TIMED_OUT, "if it does not hang, try again with more time"),
    "oom": (
        FindingName.OUT_OF_MEMORY,
        "a smaller batch, accumulation or activation_checkpointing; if others had the memory, try again",
    ),
    "invalid": (FindingName.REFUSED, "another value of what the reason names"),  # not tried again
}


@dataclass(frozen=True)
class Failed(OfStudy):
    """Trials that failed for one cause; the first represents them."""

    group: tuple[TrialRecord, ...]

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """A finding for each cause, by how the trials ended."""
        failed = whole.results.failed
        return [
            cls(whole, tuple(group))
            for state in FAILED
            for group in alike([record for record in failed if record.state == state])
        ]

    @property
    def state(self) -> State:
        return self.group[0].state

    @property
    def name(self) -> FindingName:
        return FAILED[self.state][0]

    @property
    def trial_id(self) -> str:
        return self.group[0].trial_id

    @property
    def severity(self) -> Severity:
        """A problem where nothing else is there; that a batch is too large is an answer, and a note."""
        if not self.whole.results.complete:
            return Severity.PROBLEM
        return Severity.NOTE if self.state == "oom" else Severity.WARNING

    @property
    def frames(self) -> tuple[str, ...]:
        return self.group[0].frames

    def evidence(self) -> Evidence:
        group, results = self.group, self.whole.results
        total = len(results.records)
        named = [trial_words(results.study, each.study_request) for each in group[:MOST_NAMED]]
        more = f"; and {len(group) - MOST_NAMED} more" if len(group) > MOST_NAMED else ""
        asked = "the only trial that was asked" if total == 1 else f"{len(group)} of {total} trials"
        whose = f" ({'; '.join(named)}{more})" if len(group) < total or total == 1 else ""
        reason = " ".join((group[0].reason or "").split())
        return Evidence(f"{asked}{whose}: {reason}", {"num_trials": float(len(group))})

    def next_step(self) -> NextStep:
        command = "" if self.state == "invalid" else command_to_go_on(self.whole, self.state)
        return NextStep(FAILED[self.state][1], command=command)


@dataclass(frozen=True)
class NotReached(OfStudy):
    """What was asked and not measured."""

    name = FindingName.NOT_REACHED
    trial_id = ""
    severity = Severity.WARNING  # the answer may be among it

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """Something was left out."""
        return [cls(whole)] if whole.left_out else []

    def evidence(self) -> Evidence:
        return Evidence("; ".join(self.whole.left_out), {})

    def next_step(self) -> NextStep:
        has_budget = self.whole.results.study.time_budget_seconds is not None
        budget = ", within a time budget that begins anew" if has_budget else ""
        return NextStep(f"measure the rest{budget}", command=command_to_go_on(self.whole))


NARROWER = ("bf16", "fp16", "tf32")
HELPS_AT_MOST = 1.05  # the whole interval below this: a precision that costs digits is for more


@dataclass(frozen=True)
class PrecisionWithoutGain(OfStudy):
    """A trial in a narrower precision that is not faster than the same in fp32."""

    name = FindingName.PRECISION_WITHOUT_GAIN
    severity = Severity.NOTE  # it takes no time, and digits
    record: TrialRecord
    ratio: Estimate  # of its throughput to that in fp32

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """The whole interval of the ratio is below 1.05."""
        distinct = compared(whole.results)
        in_fp32 = {
            _but_for_precision(each): each for each in distinct if each.config.setting.precision == "fp32"
        }
        narrower = [each for each in distinct if each.config.setting.precision in NARROWER]
        pairs = [(each, in_fp32[key]) for each in narrower if (key := _but_for_precision(each)) in in_fp32]
        shared = whole.shared or InSameRounds(whole.results.buckets)
        ratios = [
            (record, rate_ratio(record, other, whole.results.scalings, shared, len(pairs)).ratio)
            for record, other in pairs
        ]
        return [cls(whole, record, ratio) for record, ratio in ratios if ratio.high < HELPS_AT_MOST]

    @property
    def trial_id(self) -> str:
        return self.record.trial_id

    def evidence(self) -> Evidence:
        precision = self.record.config.setting.precision
        return Evidence(
            f"{precision} has {factor(self.ratio)} the samples/s of fp32 at the same setting",
            {"throughput_ratio": self.ratio.value},
        )

    def next_step(self) -> NextStep:
        return NextStep(
            "precision fp32, or look at what the narrower one has no fast operations for",
            {"precision": "fp32"},
            inverse(self.ratio),
        )


def _but_for_precision(record: TrialRecord) -> Hashable:
    return record.config.key(ignore=("precision", *record.config.ANY_WORKLOAD))


@dataclass(frozen=True)
class NoSignificantGain(OfStudy):
    """A winner that its confirmation does not call better; none where it was chosen for more than speed."""

    name = FindingName.NO_SIGNIFICANT_GAIN
    severity = Severity.NOTE  # it is an answer
    confirmation: Confirmation

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """As the confirmation's verdict is."""
        if not OF_SPEED.issuperset(whole.results.study.search.objectives):
            return []
        return [cls(whole, each) for each in whole.confirmed if each.gain.verdict is Verdict.NONE]

    @property
    def trial_id(self) -> str:
        return self.confirmation.record.trial_id

    def evidence(self) -> Evidence:
        told, gain = self.confirmation, self.confirmation.gain.gain
        return Evidence(
            f"the best setting ({told.label}) has {_more(gain)} samples/s than the default, "
            f"{'in the same rounds' if told.paired else 'measured apart'}",
            {"gain_ratio": gain.value},
        )

    def next_step(self) -> NextStep:
        return NextStep("keep the default: what was explored does not change it")


def _more(gain: Estimate) -> str:
    """A relative difference: "1.2% [0.4, 2.0] more", or so much fewer."""
    return f"{pct(gain)} more" if gain.value >= 0 else f"{pct(gain.scaled(-1))} fewer"


MUCH = 0.10  # relative: from here on a finding is a warning
MOST_TOLD = 3  # measurements that differ from the one that speaks


@dataclass(frozen=True)
class MeasurementsDisagree(OfStudy):
    """Measurements of one setting that differ, with what else went on at the time."""

    name = FindingName.MEASUREMENTS_DISAGREE
    apart: Disagreement

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """As ``disagreements`` finds them."""
        return [cls(whole, each) for each in whole.apart]

    @property
    def trial_id(self) -> str:
        return self.apart.speaks.record.trial_id

    @property
    def severity(self) -> Severity:
        """A warning from a tenth on, unless the one that speaks may be believed."""
        is_much = abs(self.apart.ratio.value - 1) >= MUCH and not self.apart.is_settled
        return Severity.WARNING if is_much else Severity.NOTE

    @property
    def comes_first(self) -> bool:
        """Where it is the headline that was measured under load: what explains its step explains the load."""
        is_headline = self.apart.speaks.record is self.whole.results.headline
        return is_headline and self.apart.under_load and self.severity is Severity.WARNING

    def evidence(self) -> Evidence:
        apart, config = self.apart, self.apart.config
        others = [_told(each) for each in apart.others[:MOST_TOLD]]
        left = len(apart.others) - MOST_TOLD
        more = [f"{left} more"] if left > 0 else []
        where = f"{label(self.whole.results.study, config)} on {devices_words(config.world_size)}"
        how = (
            ", beyond the intervals"
            if apart.is_certain
            else "; the intervals are too wide to tell whether by chance"
        )
        return Evidence(
            f"{where}: {'measured under load, ' if apart.under_load else ''}{_told(apart.speaks)}, "
            f"but {', '.join([*others, *more])}: {factor(apart.ratio)} that{how}",
            {"throughput_ratio": apart.ratio.value, "measurements": 1 + len(apart.others)},
        )

    def next_step(self) -> NextStep:
        speaks, agrees = self.apart.speaks, self.apart.agrees
        if self.apart.under_load:
            return _without_the_load(speaks.record, self.whole)
        if agrees is not None:
            return NextStep(
                f"nothing: the figure {speaks.where} is the one that this report has, and what was measured "
                f"{agrees.where} bears it out"
            )
        if self.apart.others_under_load:
            return NextStep(
                f"nothing: the figure {speaks.where} is the one that this report has, what is slower was "
                "measured under load"
            )
        if not self.apart.is_certain:
            return NextStep(
                f"the figure {speaks.where} is the one that this report has; rounds over more time "
                "(measure.max_seconds), or with nothing else at work, tell which one holds"
            )
        return NextStep(
            f"the figure {speaks.where} is the one that this report has, and nothing bears it out; --resume "
            "measures it again, best with nothing else at work"
        )


@dataclass(frozen=True)
class MeasuredUnderLoad(OfStudy):
    """Other processes took more cores from one trial than from those that it is held against."""

    name = FindingName.MEASURED_UNDER_LOAD
    severity = Severity.WARNING  # the setting may be better than it looks
    under: UnderLoad

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """As ``under_load`` finds them; not again where measurements of the setting show it."""
        loaded = [each.speaks for each in whole.apart if each.under_load]
        shown = {each.record.trial_id for each in loaded if each.config == each.record.config}
        return [cls(whole, each) for each in whole.loaded if each.record.trial_id not in shown]

    @property
    def trial_id(self) -> str:
        return self.under.record.trial_id

    @property
    def comes_first(self) -> bool:
        """Where it is the headline: what explains its step explains the load."""
        return self.under.record is self.whole.results.headline

    def evidence(self) -> Evidence:
        under, config = self.under, self.under.record.config
        where = f"{label(self.whole.results.study, config)} on {devices_words(config.world_size)}"
        return Evidence(
            f"{where}: {load_words(under.load)} during its rounds, {under.least.taken:.2f} during those of "
            f"the trial they disturbed least: up to {under.share:.0%} of its step is due to the difference",
            {"other_cores": under.load.taken, "least_other_cores": under.least.taken, "share": under.share},
        )

    def next_step(self) -> NextStep:
        return _without_the_load(self.under.record, self.whole)


@dataclass(frozen=True)
class SeveralDevices(OfStudy):
    """Trials ran on devices of another kind than the headline's."""

    name = FindingName.SEVERAL_DEVICES
    severity = Severity.WARNING  # what settings and world sizes differ by may be the devices
    headline: TrialRecord
    others: tuple[TrialRecord, ...]  # with numbers

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """Of trials of which it is known."""
        headline = whole.results.headline
        if headline is None:
            return []
        complete = (each for each in whole.results.records if each.state == "complete")  # of every start
        others = tuple(each for each in complete if not same_devices(each, headline))
        return [cls(whole, headline, others)] if others else []

    @property
    def trial_id(self) -> str:
        return self.others[0].trial_id

    def evidence(self) -> Evidence:
        first, here = self.others[0].config, self.headline.device_name
        of_each = Counter(each.device_name for each in self.others)
        told = [f"{counted(number, 'trial')} on {name}" for name, number in of_each.most_common()]
        example = f"{label(self.whole.results.study, first)} on {devices_words(first.world_size)}"
        return Evidence(
            f"the headline ran on {here}, {', '.join(told)} (first: {example})",
            {"trials": len(self.others)},
        )

    def next_step(self) -> NextStep:
        return NextStep(
            "a speed-up holds where its one device was measured in the same rounds; do not compare rates, "
            f"or settings, of different kinds: measure all of them on {self.headline.device_name}"
        )


def _without_the_load(record: TrialRecord, whole: WholeStudy) -> NextStep:
    """What was measured under load, once more without it: of a curve it is resumed, a search goes on."""
    named = programs_words(stoppable(record.steps), taken_by_others(record)) if record.steps else ""
    what = f" ({named} of the cores)" if named else ""
    if record.request.role != "scaling":
        return NextStep(f"stop what else runs{what} and begin a new study: a search asks nothing twice")
    if times_before(record) >= MOST_AGAIN:
        return NextStep(
            f"the figure is one of a loaded machine, measured {MOST_AGAIN + 1} times: stop what else "
            f"runs{what} and begin a new study"
        )
    return NextStep(
        f"the figure is one of a loaded machine: stop what else runs{what}, then --resume measures it again",
        command=whole.around.goes_on,
    )


def _told(reading: Reading) -> str:
    time = reading.record.started_at[11:19]
    at = f"{time} UTC, " if time else ""
    return f"{rate(reading.rate)} samples/s {reading.where} ({at}{load_words(reading.load)})"
