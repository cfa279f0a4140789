"""What other settings change: measured against the default, verified, predicted; the largest batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raybench.analysis.findings.finding import Finding
from raybench.analysis.findings.verifications import Verification, Verified, verification_of
from raybench.analysis.labels import combination_words, devices_of, knob_words
from raybench.analysis.largest_batch import MEMORY_SHARE, LargestFit
from raybench.analysis.objectives import objective_value
from raybench.analysis.resolve import Facts
from raybench.analysis.results import StudyResults
from raybench.analysis.simulate.what_if import Predicted, WhatIf
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.report.finding_texts import next_step
from raybench.report.format import duration_words, figures, interval, milliseconds, percent, plain_share
from raybench.report.table import NONE, Column, Table, known, make_table, numbers


def settings_table(results: StudyResults) -> Table:
    """Every setting at the target against the default, the fastest first; empty where there is one."""
    gains, objectives = results.gains, results.study.search.objectives
    front = {each.record.trial_id for each in results.chosen}

    def memory(record: TrialRecord) -> Estimate | None:
        """Of the rank that takes most."""
        shown = _shows_memory(results)
        return objective_value(record, "peak_memory", results.scaling(record)) if shown else None

    def on_front(record: TrialRecord) -> str:
        return "yes" if record.trial_id in front else ""

    def verdict(record: TrialRecord) -> str:
        if record is results.default:
            return "the default"
        if not results.is_sound(record) and not record.config.oversubscribed:
            return "losses disagree"
        return known(gains.get(record.trial_id), lambda gain: str(gain.verdict))

    columns: list[Column[TrialRecord]] = [
        Column("setting", results.label, stays=True),
        numbers("samples/s", lambda record: results.scaling(record).throughput_samples_per_s, interval),
        numbers(
            "gain", lambda record: gains.get(record.trial_id), lambda gain: percent(gain.gain, sign=True)
        ),
        Column("verdict", verdict),
        numbers("fastest", lambda record: results.chances.get(record.trial_id), "{:.0%}".format),
        numbers("efficiency", lambda record: results.scaling(record).efficiency, percent),
        numbers("peak memory, MiB", memory, lambda most: figures(most.value / 2**20), ""),
        *([Column("Pareto front", on_front, stays=True)] if len(objectives) > 1 else []),
        numbers("visits", lambda record: len(results.fit.visits(record))),
    ]
    has_dp = any(each.config.setting.strategy == "dp" for each in results.rivals)  # the caption says more
    rows = _fastest_first(results) if len(results.rivals) > 1 or has_dp else []
    return make_table("Settings against the default", _caption(results), columns, rows)


def _fastest_first(results: StudyResults) -> list[TrialRecord]:
    return sorted(results.rivals, key=lambda record: -results.scaling(record).throughput_samples_per_s.value)


def _caption(results: StudyResults) -> str:
    words = f"On {results.devices(results.compared_at)}."
    if results.gains:
        words += (
            f" Gains are over the default, with 95% intervals for all rows at once; as good: within "
            f"{results.study.search.minimum_gain:.0%}."
        )
    use = results.recommendation
    record = results.reference_of(use.config) if use else None
    lost = results.regret(record) if results.gains and record else None
    if results.gains and results.chances:
        words += " Fastest: how likely a setting is to be the fastest of those that may be advised."
    if lost is not None and lost.value >= 0.0005:  # less rounds to nothing
        words += (
            f" Whichever that is, it beats the setting to use by {plain_share(lost.value)} on average, and "
            f"by at most {plain_share(lost.high)} in 19 of 20 cases."
        )
    return " ".join(filter(None, (words, _data_parallel_words(results))))


def _shows_memory(results: StudyResults) -> bool:
    """Strategies differ in memory."""
    objectives = results.study.search.objectives
    return "peak_memory" in objectives or len(results.study.knobs.values("strategy")) > 1


def largest_table(results: StudyResults) -> Table:
    """What ``batch_size = "max"`` stands for in each combination of the knobs that change memory."""

    def setting(largest: LargestFit) -> str:
        combination = largest.setting.at(largest.world_size)
        return combination_words(results.study, combination)

    columns: list[Column[LargestFit]] = [
        Column("setting", setting, stays=True),
        numbers("largest batch", lambda each: each.batch_size, "{:,}".format, "none"),
        Column("why no larger one", lambda each: " ".join(each.reason.split()) or "not finished"),
    ]
    counted = "of all devices" if results.study.scaling.mode == "strong" else "per device"
    caption = (
        f"On {results.devices(results.target_world_size)}, batch {counted}: at most {MEMORY_SHARE:.0%} of a "
        "rank's memory (on CPUs an equal share of the host's)."
    )
    return make_table("The largest batch that fits", caption, columns, results.largest)


DP_PARTS = {"scatter": "scattering", "replicate": "copying", "gather": "gathering outputs"}


def _data_parallel_words(results: StudyResults) -> str:
    """What DataParallel does in a step, and how long that takes; empty without it."""
    dp = next((each for each in _fastest_first(results) if each.config.setting.strategy == "dp"), None)
    if dp is None:
        return ""
    words = [
        "DataParallel is one process for all devices: in each step it scatters the batch, copies the weights "
        "to every device, gathers the outputs on the first, and sums the gradients there."
    ]
    if dp.steps and dp.steps.data_parallel_s:
        timed = dp.steps.data_parallel_s.items()
        parts = ", ".join(f"{duration_words(seconds)} {DP_PARTS[name]}" for name, seconds in timed)
        words.append(f"In steps of their own it spent {parts}; gradients are summed in the backward pass.")
    return " ".join(words)


# --- changes that a diagnosis proposes, tested by experiment


def verification_table(results: StudyResults) -> Table:
    """One row a change, those of the most time first; empty where none was tested."""

    def source(each: Verification) -> str:
        simulated = "what if" if each.proposal.simulated is not None else NONE
        return ", ".join(found.name for found in each.proposal.findings) or simulated

    def gained(each: Verification) -> str:
        return known(each.gain, lambda gain: percent(gain.gain, sign=True), "")

    def verdict(each: Verification) -> str:
        """With the reason, where there is no number."""
        needs_you = each.verdict is Verified.NEEDS_YOU
        reason = each.reason or (next_step(each.proposal.findings[0]) if needs_you else "")
        return str(each.verdict) + (f": {' '.join(reason.split())}" if reason else "")

    columns: list[Column[Verification]] = [
        Column("finding", source),
        Column("change", lambda each: each.label or NONE),
        Column("gain", gained, right=True),
        Column("verdict", verdict),
    ]
    caption = (
        "Gain in samples/s over the setting without it; 95% intervals for all at once. Confirmed: by "
        f"{results.study.search.minimum_gain:.0%} at least; refuted: slower, or less than implied."
    )
    return make_table("Verified by experiment", caption, columns, results.verifications)


def advice_of(finding: Finding, verified: Sequence[Verification]) -> tuple[str, str]:
    """The finding's next step after its label; the verdict, with the measured gain, where it was tried."""
    test = verification_of(finding, verified)
    if test is None:
        return "Next step", next_step(finding)
    ratio = f", {1 + test.gain.gain.value:.2f} times as fast" if test.gain else ""
    reason = f": {' '.join(test.reason.split())}" if test.reason else ""
    return test.verdict.capitalize(), f"{test.label}{ratio}{reason}"


# --- what other buckets would bring

WHAT_IF_TITLE = "What if: predicted from one trial"
RESTS_ON = (
    "Intervals hold what was not measured: the latency where one replay alone shows it, computing at other "
    "batches, the copies of compression, other limits of a faster link."
)

_WHAT_IF_COLUMNS: list[Column[Predicted]] = [
    Column("what if", lambda row: row.words),
    numbers("buckets", lambda row: row.num_buckets),
    numbers("predicted step, ms", lambda row: row.step_time_s, milliseconds, stays=True),
    numbers("communication not hidden, ms", lambda row: row.exposed_s * 1e3, figures),
    numbers("samples/s", lambda row: row.throughput_samples_per_s.value, "{:,.0f}".format),
    numbers("faster by", lambda row: row.gain, percent, stays=True),
    numbers("measured step, ms", lambda row: row.measured_s, milliseconds),
    numbers("error", lambda row: row.error or None, "{:+.1%}".format),
]


def buckets_table(results: StudyResults, chosen: WhatIf | None) -> Table:
    """What the default's trial alone says of other buckets; empty where it says nothing for certain."""
    decided = _decided(chosen) if chosen else []
    if chosen is None or not decided:
        return Table(WHAT_IF_TITLE)
    own = [each for each in chosen.points if each.setting == chosen.record.config.setting]
    return what_if_table(results, replace(chosen, points=(*own, *decided)))


def _decided(chosen: WhatIf) -> list[Predicted]:
    """What is faster or slower with its whole interval, and a list of bucket sizes that is proposed."""
    listed = chosen.listed.point.setting if chosen.listed and chosen.listed.is_proposed else None
    return [each for each in chosen.points if each.gain.excludes(0) or each.setting == listed]


def buckets_words(chosen: WhatIf | None) -> str:
    """Whether a prediction decides anything, and a list of bucket sizes would; empty without one."""
    if chosen is None or not any(each.gain.low or each.gain.high for each in chosen.points):
        return ""  # or all of them are the same buckets
    words = [] if _decided(chosen) else ["No other bucket size is predicted to differ measurably."]
    listed = chosen.listed
    if listed is not None and not listed.is_proposed:
        words.append("No list of bucket sizes is predicted to be certainly faster than the best single size.")
    elif listed is not None:
        words.append(
            f"The list (DDP's bucket_cap_mb_list) is predicted to be {percent(listed.gain)} faster than the "
            f"best single size, {knob_words('bucket_cap_mb', listed.single)}."
        )
    return " ".join(words)


def what_if_table(results: Facts, found: WhatIf) -> Table:
    """A row for each change, the measured step beside the predicted one where there is one."""
    record = found.record
    caption = (
        f"From trial {record.trial_id} ({results.label(record)}, {devices_of(record.config)}): "
        f"{milliseconds(found.step_time_s)} ms measured, {figures(found.simulated_s * 1e3)} ms simulated; "
        f"predictions are corrected by the difference. {RESTS_ON}"
    )
    return make_table(WHAT_IF_TITLE, caption, _WHAT_IF_COLUMNS, found.points)


def point_words(row: Predicted) -> str:
    """A prediction in a line."""
    measured = "" if row.measured_s is None else f", measured {milliseconds(row.measured_s)} ms"
    return f"{row.words}: {milliseconds(row.step_time_s)} ms{measured}"
