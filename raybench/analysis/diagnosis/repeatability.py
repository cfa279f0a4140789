"""Does one setting have one speed? What was measured twice, under load or on other devices."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Self

from raybench.analysis.diagnosis.findings import Evidence, FindingName, NextStep, Severity
from raybench.analysis.diagnosis.programs import programs_words, stoppable, taken_by_others
from raybench.analysis.diagnosis.whole import OfStudy, WholeStudy
from raybench.analysis.diagnosis.words import factor, rate
from raybench.analysis.disagreements import Disagreement, Reading
from raybench.analysis.estimates.repeated import MOST_AGAIN, times_before
from raybench.analysis.labels import devices_words, label
from raybench.analysis.load import load_words
from raybench.analysis.same_setting import same_devices
from raybench.analysis.uneven_load import UnderLoad
from raybench.records.record import TrialRecord
from raybench.spec.counted import counted

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
        """The one that speaks."""
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
        """All of them, and how far they are apart."""
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
        """Which figure counts, and what would bear it out."""
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
    under: UnderLoad

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """As ``under_load`` finds them; not again where measurements of the setting show it."""
        loaded = [each.speaks for each in whole.apart if each.under_load]
        shown = {each.record.trial_id for each in loaded if each.config == each.record.config}
        return [cls(whole, each) for each in whole.loaded if each.record.trial_id not in shown]

    @property
    def trial_id(self) -> str:
        """The one that was disturbed."""
        return self.under.record.trial_id

    @property
    def severity(self) -> Severity:
        """The setting may be better than it looks."""
        return Severity.WARNING

    @property
    def comes_first(self) -> bool:
        """Where it is the headline: what explains its step explains the load."""
        return self.under.record is self.whole.results.headline

    def evidence(self) -> Evidence:
        """What others took, here and at the least."""
        under, config = self.under, self.under.record.config
        where = f"{label(self.whole.results.study, config)} on {devices_words(config.world_size)}"
        return Evidence(
            f"{where}: {load_words(under.load)} during its rounds, {under.least.taken:.2f} during those of "
            f"the trial they disturbed least: up to {under.share:.0%} of its step is due to the difference",
            {"other_cores": under.load.taken, "least_other_cores": under.least.taken, "share": under.share},
        )

    def next_step(self) -> NextStep:
        """The same without the load."""
        return _without_the_load(self.under.record, self.whole)


@dataclass(frozen=True)
class SeveralDevices(OfStudy):
    """Trials ran on devices of another kind than the headline's."""

    name = FindingName.SEVERAL_DEVICES
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
        """The first one on another kind."""
        return self.others[0].trial_id

    @property
    def severity(self) -> Severity:
        """What settings and world sizes differ by may be the devices."""
        return Severity.WARNING

    def evidence(self) -> Evidence:
        """How many trials, on what, and one of them."""
        first, here = self.others[0].config, self.headline.device_name
        of_each = Counter(each.device_name for each in self.others)
        told = [f"{counted(number, 'trial')} on {name}" for name, number in of_each.most_common()]
        example = f"{label(self.whole.results.study, first)} on {devices_words(first.world_size)}"
        return Evidence(
            f"the headline ran on {here}, {', '.join(told)} (first: {example})",
            {"trials": len(self.others)},
        )

    def next_step(self) -> NextStep:
        """What may be compared, and how all may be."""
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
