"""Findings on a study: failures, what was not reached, gains."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Self

from raybench.analysis.failures import alike
from raybench.analysis.findings.case import OfStudy, WholeStudy
from raybench.analysis.findings.configurations import compared
from raybench.analysis.findings.finding import FindingName, Remedy, Severity
from raybench.analysis.objectives import OF_SPEED
from raybench.analysis.reference import same_devices
from raybench.analysis.stats.statistics import Estimate, inverse
from raybench.analysis.stats.verdict import Gain, Verdict
from raybench.records.record import State, TrialRecord
from raybench.spec.study import COMPILING

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
            is_longer = request.kind != "training" and request.config.setting.compile
            field_s = request.timeout_s / (COMPILING if is_longer else 1)
            longest_s[field] = max(longest_s.get(field, 0.0), field_s)
    words += [f"--set {field}={MORE_TIME * longest:g}" for field, longest in longest_s.items()]
    return " ".join(words)


# each way to end without figures
FAILED: Mapping[State, FindingName] = {
    "crashed": FindingName.CRASHED,
    "timeout": FindingName.TIMED_OUT,
    "oom": FindingName.OUT_OF_MEMORY,
    "invalid": FindingName.REFUSED,  # not tried again
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
        return FAILED[self.state]

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

    @property
    def values(self) -> dict[str, float]:
        return {"num_trials": float(len(self.group))}

    @property
    def remedy(self) -> Remedy:
        return Remedy(command="" if self.state == "invalid" else command_to_go_on(self.whole, self.state))


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

    @property
    def values(self) -> dict[str, float]:
        return {}

    @property
    def remedy(self) -> Remedy:
        return Remedy(command=command_to_go_on(self.whole))


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
        ratios = whole.results.fit.rate_ratios(pairs)
        found = zip((record for record, _ in pairs), ratios, strict=True)
        return [cls(whole, record, ratio) for record, ratio in found if ratio.high < HELPS_AT_MOST]

    @property
    def trial_id(self) -> str:
        return self.record.trial_id

    @property
    def values(self) -> dict[str, float]:
        return {"throughput_ratio": self.ratio.value}

    @property
    def remedy(self) -> Remedy:
        return Remedy({"precision": "fp32"}, inverse(self.ratio))


def _but_for_precision(record: TrialRecord) -> Hashable:
    return record.config.key(ignore=("precision", *record.config.ANY_WORKLOAD))


@dataclass(frozen=True)
class NoGain(OfStudy):
    """The best setting is as good as the default, or not known to be better, where speed is what counts."""

    severity = Severity.NOTE  # it is an answer
    record: TrialRecord
    gain: Gain

    @classmethod
    def condition(cls, whole: WholeStudy) -> list[Self]:
        """By the verdict on the best."""
        facts = whole.results
        best = facts.best
        if best is None or best.is_default or not OF_SPEED.issuperset(facts.study.search.objectives):
            return []
        gain = facts.gain(best.record)
        if gain is None or gain.verdict is Verdict.BETTER:
            return []
        return [cls(whole, best.record, gain)]

    @property
    def name(self) -> FindingName:
        as_good = self.gain.verdict is Verdict.AS_GOOD
        return FindingName.AS_GOOD if as_good else FindingName.NOT_KNOWN_YET

    @property
    def trial_id(self) -> str:
        return self.record.trial_id

    @property
    def values(self) -> dict[str, float]:
        values = {"gain_ratio": self.gain.gain.value}
        return values if self.gain.to_tell is None else values | {"times_to_tell": float(self.gain.to_tell)}


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

    @property
    def values(self) -> dict[str, float]:
        return {"trials": len(self.others)}
