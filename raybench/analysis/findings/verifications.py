"""The changes that a diagnosis proposes, tested by experiment: which can be, and what came out.

A change is measured in the same rounds as the setting without it. What was measured already is not measured
again: its visits tell. Trials of verification are no suggestions: no curve and no choice knows of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from raybench.analysis.findings.finding import Finding, Severity
from raybench.analysis.labels import knob_words
from raybench.analysis.resolve import Facts
from raybench.analysis.simulate.what_if import ListedSizes, study_what_if
from raybench.analysis.stats.statistics import Estimate
from raybench.analysis.stats.verdict import Gain, Verdict, gain_of
from raybench.records.record import TrialRecord
from raybench.records.requests import Configuration
from raybench.spec.knobs import KnobValue, Setting


class Verified(StrEnum):
    """What the experiment says of a proposed change."""

    #: more samples/s beyond the interval, and by `search.minimum_gain` at least
    CONFIRMED = "confirmed"
    #: slower; or not confirmed, and the whole interval lies below what was predicted, without a prediction
    #: below `search.minimum_gain`
    REFUTED = "refuted"
    #: the interval holds both
    UNDECIDED = "undecided"
    #: it was tried and did not run: the state and the reason
    FAILED = "failed"
    #: there was no time for it
    NOT_RUN = "not run"
    #: raybench cannot try it: the finding's next step, or why
    NEEDS_YOU = "needs you"


@dataclass(frozen=True)
class Proposal:
    """What findings propose to change in the headline's trial."""

    findings: tuple[Finding, ...]  # that propose the same, what explains the most time first
    change: Mapping[str, KnobValue]  # empty: what raybench cannot do is their next step
    setting: Setting
    obstacle: str = ""  # why it cannot be tried here
    simulated: Estimate | None = None  # of what the simulator proposes, without a finding: as ``predicted``

    @property
    def needs_you(self) -> bool:
        """Whether raybench cannot try it."""
        return not self.change or bool(self.obstacle)

    @property
    def predicted(self) -> Estimate | None:
        """The throughput with the change over that without it, of the first finding that says one."""
        of_findings = (each.predicted for each in self.findings if each.predicted is not None)
        return next(of_findings, self.simulated)

    @property
    def wins_s(self) -> float:
        """What the first finding's change is likely to win back of a step, in s."""
        return self.findings[0].wins_s if self.findings else 0.0


@dataclass(frozen=True)
class Verification:
    """A proposal, and what measuring it has shown."""

    proposal: Proposal
    verdict: Verified
    gain: Gain | None = None  # of throughput, relative; simultaneous over all that were tested
    record: TrialRecord | None = None
    reason: str = ""

    @property
    def label(self) -> str:
        """The change in words: "batch 2,048, 25 MiB buckets"."""
        return ", ".join(knob_words(name, value) for name, value in self.proposal.change.items())


def proposals(base: Facts, first: Sequence[Finding]) -> list[Proposal]:
    """What the findings of the headline propose, and a list of bucket sizes; those of the most time first.

    Each change once.
    """
    headline = base.headline
    if headline is None:
        return []
    found = dict[object, Proposal]()
    for finding in first:
        proposal = _proposal(finding, headline.config) if finding.trial_id == headline.trial_id else None
        if proposal is not None:
            what = proposal.obstacle if proposal.change else finding.name
            key = proposal.setting, what
            known = found.setdefault(key, replace(proposal, findings=()))
            found[key] = replace(proposal, findings=(*known.findings, finding))
    every = list(found.values())
    listed = _bucket_list(base, headline.config)
    if listed is not None and all(each.setting != listed.point.setting for each in every):
        point, config = listed.point, headline.config
        wins_s = base.scaling(headline).step_time_s.value - point.step_time_s.value
        place = next((place for place, each in enumerate(every) if each.wins_s < wins_s), len(every))
        ratio = point.gain.plus(1.0)
        change, obstacle = point.change.knobs, point.setting.fault(config.device) or ""
        every.insert(place, Proposal((), change, point.setting, obstacle, ratio))
    return every


def _bucket_list(base: Facts, config: Configuration) -> ListedSizes | None:
    """The list that the simulator proposes for the headline, whose configuration this is."""
    found = study_what_if(base)
    if found is None or base.fit.buckets.key(found.record.config) != base.fit.buckets.key(config):
        return None
    return found.listed if found.listed is not None and found.listed.is_proposed else None


def verifications(base: Facts, first: Sequence[Finding]) -> tuple[Verification, ...]:
    """Every proposal with what is known of it; empty where none was tested by a trial of its own."""
    headline = base.headline
    if headline is None:
        return ()
    # those of another headline's variables or place, as of a default that had failed, do not test this one
    same = {"setting": headline.config.setting}
    every = (record for record in base.records if record.request.role == "verification")
    if not (asked := [each for each in every if each.config.model_copy(update=same) == headline.config]):
        return ()
    tested = [(each, test_of(base, each)) for each in proposals(base, first)]
    known = {record.trial_id for _, record in tested if record is not None}
    for record in asked:  # what an earlier diagnosis proposed
        if record.trial_id not in known:
            change = record.config.differences(headline.config)
            tested.append((Proposal((), change, record.config.setting), record))
    measured = [record for _, record in tested if record is not None and record.steps is not None]
    ratios = base.fit.rate_ratios([(record, headline) for record in measured])
    by_id = {record.trial_id: ratio for record, ratio in zip(measured, ratios, strict=True)}
    return tuple(
        _verified(base, each, record, by_id.get(record.trial_id) if record else None)
        for each, record in tested
    )


def test_of(base: Facts, proposal: Proposal) -> TrialRecord | None:
    """The trial that tests a proposal, whatever its state; None: there is none.

    One made for it, or one of the study's own of the same setting in the same processes as the headline.
    """
    headline = base.headline
    assert headline is not None
    asked = (proposal.setting, headline.config.environment)
    if proposal.needs_you:
        return None
    there = [
        record
        for record in base.records
        if record.request.kind == "steps"
        and (record.config.setting, record.config.environment) == asked
        and record.config.world_size == headline.config.world_size
        and record.config.placement == headline.config.placement
    ]
    of_role = [record for record in there if record.request.role == "verification"]
    return next(iter([*of_role, *(record for record in there if record.steps is not None)]), None)


def verification_of(finding: Finding, verified: Sequence[Verification]) -> Verification | None:
    """What trying the finding's change has shown; None: it was not tried."""
    tried = (each for each in verified if each.record is not None)
    return next((each for each in tried if finding in each.proposal.findings), None)


def _proposal(finding: Finding, config: Configuration) -> Proposal | None:
    """None for what neither explains time nor proposes anything."""
    if not finding.change:
        explains = finding.explains is not None and finding.severity is not Severity.NOTE
        if not explains and finding.severity is not Severity.PROBLEM:
            return None
        return Proposal((finding,), {}, config.setting)
    setting = Setting(**{**config.setting.model_dump(), **finding.change}).at(config.world_size)
    if setting == config.setting:
        return None
    return Proposal((finding,), dict(finding.change), setting, setting.fault(config.device) or "")


def _verified(
    base: Facts, proposal: Proposal, record: TrialRecord | None, ratio: Estimate | None
) -> Verification:
    if record is None:
        verdict = Verified.NEEDS_YOU if proposal.needs_you else Verified.NOT_RUN
        return Verification(proposal, verdict, reason=proposal.obstacle)
    if ratio is None:
        return Verification(proposal, Verified.FAILED, None, record, f"{record.state}: {record.reason}")
    least = base.study.search.minimum_gain
    found = gain_of(ratio, least)
    return Verification(proposal, verdict_of(found, proposal.predicted, least), found, record)


def verdict_of(found: Gain, predicted: Estimate | None, least: float) -> Verified:
    """What a measured gain says of a change that is predicted to bring ``predicted``, a ratio.

    Confirmed where it is better by ``gain_of``, however much was predicted. Refuted where it is worse, or
    else the whole interval lies below what was predicted, and below ``least`` where nothing was.
    """
    if found.verdict is Verdict.BETTER:
        return Verified.CONFIRMED
    promised = least if predicted is None else max(predicted.low - 1, least)
    if found.verdict is Verdict.WORSE or found.gain.high < promised:
        return Verified.REFUTED
    return Verified.UNDECIDED
