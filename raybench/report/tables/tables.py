"""Tables of a study: values to strings, with captions that say what they are."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.analysis.estimates.efficiency import Scaling
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.labels import devices_words, setting_words
from raybench.analysis.largest_batch import MEMORY_SHARE
from raybench.analysis.loss_parity import ParityVerdict
from raybench.analysis.results import StudyResults
from raybench.records.record import TrialRecord
from raybench.report.wording import PART_WORDS, aligned, bound_words, figures, interval, percent, times
from raybench.spec.knobs import Setting

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Column:
    """One column's heading, with its unit, and on which side its cells stand."""

    heading: str
    right: bool = False


@dataclass(frozen=True)
class Table:
    """A table of strings with a caption that says what its numbers are."""

    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


def scaling_table(results: StudyResults) -> Table:
    """Every trial that is complete, suggestions and confirmations apart, by setting and world size."""
    rows = []
    for record in in_order(results, "scaling", "verification"):
        found = results.scaling(record)
        rows.append(
            (
                str(record.config.world_size),
                results.label(record) + mark(record),
                milliseconds(found.step_time_s),
                interval(found.throughput_samples_per_s),
                *_efficiency_cells(found),
                str(found.step_time_s.n),
            )
        )
    caption = (
        "Mean with 95% interval over n rounds. Speed-up and efficiency are against one device alone in the "
        "same rounds, without wrapper, unless a base is named."
    )
    if any(record.config.oversubscribed for record in results.complete):
        caption += " * more workers than cores: for correctness only."
    columns = (
        Column("devices", True),
        Column("setting"),
        Column("step time, ms", True),
        Column("samples/s", True),
        Column("speed-up", True),
        Column("efficiency", True),
        Column("status"),
        Column("n", True),
    )
    return Table("Scaling", caption, columns, tuple(rows))


def strategies_table(results: StudyResults) -> Table:
    """Strategies side by side at each world size; empty where the study has one."""
    rows = tuple(
        (
            str(row.record.config.world_size),
            row.record.config.setting.strategy,
            f"{row.record.config.global_batch_size:,}",
            milliseconds(row.scaling.step_time_s),
            *_efficiency_cells(row.scaling)[:2],
            figures(row.memory_bytes / MEBIBYTE) if row.memory_bytes else "",
            _parity_words(row.parity),
            str(row.scaling.step_time_s.n),
        )
        for row in results.strategies
    )
    memory = "of the process, whatever it holds"
    if not any(row.memory_is_of_process for row in results.strategies):
        memory = "as torch counts it, of the strategy alone (fsdp: without the copy that is its base)"
    caption = (
        "Mean with 95% interval over n rounds; peak memory is that of the rank that takes most, "
        f"{memory}. Each strategy stands with the default's other settings, else with its fastest. Loss "
        "parity: from the same weights on the same samples, the largest difference of a step's loss from "
        "one device's, and that of the first step's averaged gradient, relative, of what is tolerated."
    )
    columns = (
        Column("devices", True),
        Column("strategy"),
        Column("global batch", True),
        Column("step time, ms", True),
        Column("speed-up", True),
        Column("efficiency", True),
        Column("peak memory, MiB", True),
        Column("loss parity"),
        Column("n", True),
    )
    return Table("Strategies", caption, columns, rows)


def compression_table(results: StudyResults) -> Table:
    """What compression does to the gradients; empty where nothing is compressed."""
    measured = [(record, record.steps) for record in in_order(results, "scaling") if record.steps]
    rows = tuple(
        (
            str(record.config.world_size),
            results.label(record),
            record.config.setting.gradient_compression,
            f"{found.compression_error:.2g}",
        )
        for record, found in measured
        if found.compression_error is not None
    )
    columns = (
        Column("devices", True),
        Column("setting"),
        Column("compression"),
        Column("relative error", True),
    )
    caption = (
        "|compressed - exact| / |exact| of the averaged gradient of one step, Euclidean norms, the same "
        "weights and samples."
    )
    return Table("Error of gradient compression", caption, columns, rows)


def suggestions_table(results: StudyResults) -> Table:
    """The suggestions of a search at the target world size, the fastest first."""
    rows = []
    for record in in_order(results, "search"):
        found = results.scaling(record)
        memory = record.steps.peak_memory_bytes if record.steps else None
        rows.append(
            (
                found.throughput_samples_per_s.value,
                (
                    "" if record.suggestion is None else str(record.suggestion),
                    results.label(record) + mark(record),
                    interval(found.throughput_samples_per_s),
                    percent(found.efficiency) if found.efficiency else "",
                    figures(max(memory) / MEBIBYTE) if memory else "",
                    str(found.step_time_s.n),
                ),
            )
        )
    ordered = tuple(cells for _, cells in sorted(rows, key=lambda row: -row[0]))
    columns = (
        Column("#", True),
        Column("setting"),
        Column("samples/s", True),
        Column("efficiency", True),
        Column("peak memory, MiB", True),
        Column("n", True),
    )
    caption = (
        f"World size {results.target_world_size}. Trials are minutes apart, so drift is in these numbers: "
        "the confirmation has the last word. A suggestion's batch size is a choice about speed alone: how "
        "many epochs a batch needs to reach an accuracy was not measured."
    )
    return Table("Suggestions", caption, columns, ordered)


def largest_table(results: StudyResults) -> Table:
    """What ``batch_size = "max"`` stands for in each combination of the knobs that change memory."""
    explored = [name for name in results.study.knobs.explored() if name in Setting.MEMORY_KNOBS]
    further = [name for name in explored if name not in ("strategy", "precision")]
    rows = []
    for each in results.largest:
        memory = each.fitting
        share = memory.share if memory else None
        known = memory is not None and share is not None
        rows.append(
            (
                "single" if each.world_size == 1 else each.setting.strategy,
                setting_words(each.setting, ["precision", *further]),
                "none" if each.batch_size is None else f"{each.batch_size:,}",
                figures(memory.memory_bytes / MEBIBYTE) if known and memory and memory.memory_bytes else "",
                f"{share:.0%}" if share is not None else "",
                bound_words(each),
                f"{each.num_probes} ({each.num_out_of_memory})",
            )
        )
    columns = (
        Column("strategy"),
        Column("setting"),
        Column("largest batch", True),
        Column("memory, MiB", True),
        Column("share of the memory", True),
        Column("why no larger one"),
        Column("probes (out of memory)", True),
    )
    counted = "of all devices" if results.study.scaling.mode == "strong" else "per device"
    sized = f"{devices_words(results.target_world_size)}, batch {counted}"
    caption = (
        f"On {sized}: the largest that takes at most {MEMORY_SHARE:.0%} of a rank's memory, by doubling and "
        "bisection; above 64 in multiples of 8, above 1,024 in steps of 1 to 2%. Memory is the device's "
        "count on the fullest rank: on GPUs what torch has reserved, context and communicators included, "
        "against the GPU's; on CPUs the process's peak resident set against an equal share of the host's."
    )
    return Table("The largest batch that fits", caption, columns, tuple(rows))


def confirmation_table(results: StudyResults) -> Table:
    """Winners against the default, measured in the same rounds."""
    rows = tuple(
        (
            each.label,
            str(each.record.config.world_size),
            percent(each.gain.gain, sign=True),
            str(each.gain.verdict),
            str(each.gain.gain.n),
        )
        for each in results.confirmations
    )
    columns = (
        Column("winner"),
        Column("devices", True),
        Column("gain in samples/s", True),
        Column("verdict"),
        Column("n", True),
    )
    caption = (
        "Interleaved with the default in the same rounds, 95% interval. A gain is significant when the "
        f"interval excludes 0 and it is at least {results.study.search.minimum_gain:.0%}."
    )
    return Table("The winner against the default", caption, columns, rows)


def waterfall_table(results: StudyResults) -> Table:
    """The parts of a step of the headline trial, and the field's simpler words for them."""
    found = results.waterfall
    rows: list[tuple[str, ...]] = []
    if found is not None and found.world_size > 1:
        total_s = found.step_time_s.value
        for name, part in found.parts.present().items():
            rows.append((PART_WORDS[name], milliseconds(part), f"{part.value / total_s:.1%}", str(part.n)))
        rows.append(("step time", milliseconds(found.step_time_s), "100%", str(found.step_time_s.n)))
    columns = (Column("part"), Column("ms", True), Column("share", True), Column("n", True))
    where = devices_words(results.headline.config.world_size) if results.headline else ""
    caption = " ".join(
        [
            f"One step on {where} ({results.headline_label}): mean with 95% interval over n rounds. "
            "The parts add up to the step time.",
            *(f"Note: {note}." for note in (found.notes if found else ())),
        ]
    )
    return Table("Where the time goes", caption, columns, tuple(rows))


def communication_table(results: StudyResults) -> Table:
    """What else the headline trial says of its communication; empty where it measured none."""
    found = results.waterfall
    if found is None or found.world_size == 1:
        return Table("Communication", "", (), ())
    percents: list[tuple[str, Estimate | None]] = [
        ("T_comm / T(n)", found.t_comm_fraction),
        ("exposed communication / T(n)", found.communication_fraction),
        ("Amdahl's serial fraction f", found.serial_fraction),
    ]
    durations: list[tuple[str, Estimate | None]] = [
        ("T_comm = T(n) - T(1), ms", found.t_comm_s),
        ("all-reduces alone (replay), ms", found.replay_s),
        ("hidden by overlap (replay - exposed), ms", found.hidden_communication_s),
    ]
    rows = [(name, milliseconds(part), str(part.n)) for name, part in durations if part]
    rows += [(name, percent(part), str(part.n)) for name, part in percents if part]
    ratio, bandwidth = found.compute_to_communication, found.bus_bandwidth_bytes_per_s
    if ratio:
        rows.append(("compute / communication (crowd / replay)", interval(ratio), str(ratio.n)))
    if bandwidth:
        rows.append(("bus bandwidth of the replay, GB/s", interval(bandwidth.scaled(1e-9)), str(bandwidth.n)))
    if found.ddp_logger:
        check = found.ddp_logger
        said = (
            f"{check.communication_s * 1e3:.2f} - {check.overlap_s * 1e3:.2f} = {check.exposed_s * 1e3:.2f}"
        )
        rows.append(("DDP's own logger: communication - overlap, ms", said, "few"))
    caption = "Mean with 95% interval over n rounds. A negative hidden part is what interference adds."
    columns = (Column("quantity"), Column("value", True), Column("n", True))
    return Table("Communication", caption, columns, tuple(rows))


def failures_table(results: StudyResults) -> Table:
    """Trials without numbers, and why."""
    rows = tuple(
        (
            record.trial_id,
            str(record.config.world_size),
            results.label(record),
            record.state,
            " ".join((record.reason or "").split()),
        )
        for record in results.failed
    )
    columns = (
        Column("trial"),
        Column("devices", True),
        Column("setting"),
        Column("state"),
        Column("reason"),
    )
    return Table("Trials without numbers", "", columns, rows)


def in_order(results: StudyResults, *roles: str) -> list[TrialRecord]:
    """The complete records of these roles by setting, smallest world size first; the default's first."""
    chosen = [record for record in results.measured if record.request.role in roles]
    curve_of: dict[str, int] = {}
    for index, curve in enumerate(results.curves):
        for point in curve.points:  # a trial on one device belongs to several: it stands with the first
            curve_of.setdefault(point.trial_id, index)
    last = len(results.curves)
    return sorted(chosen, key=lambda record: (curve_of.get(record.trial_id, last), record.config.world_size))


def _efficiency_cells(found: Scaling) -> tuple[str, str, str]:
    if found.speedup is None or found.efficiency is None or found.baseline is None:
        return "", "", "no baseline"
    if found.speedup.half_width == 0:  # the baseline itself
        return "1", "100%", "baseline"
    base = "" if found.baseline.world_size == 1 else f" over {found.baseline.world_size}"
    return times(found.speedup) + base, percent(found.efficiency), str(found.status)


def _parity_words(verdict: ParityVerdict | None) -> str:
    if verdict is None:
        return ""
    found = f"{verdict.relative_difference:.1g} of {verdict.tolerance:g} in {verdict.steps} steps"
    if verdict.gradient_difference is not None:
        found += f", gradient {verdict.gradient_difference:.1g} of {verdict.gradient_tolerance:g}"
    if verdict.agrees:
        return f"agrees: {found}"
    why = f" ({'; '.join(verdict.may_differ)})" if verdict.may_differ else ""
    return f"differs: {found}{why}"


def mark(record: TrialRecord) -> str:
    """What tells a record of more workers than cores apart."""
    return " *" if record.config.oversubscribed else ""


def milliseconds(estimate: Estimate) -> str:
    """A time in s as ms, with its interval."""
    value, low, high = aligned(*(each * 1e3 for each in (estimate.value, estimate.low, estimate.high)))
    return f"{value} [{low}, {high}]"
