"""Figures that others published of the study's experiment, next to what was measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from raybench.analysis.choice import default_setting
from raybench.analysis.estimates.bounded import POSITIVE, SHARE
from raybench.analysis.estimates.epochs import epochs_time
from raybench.analysis.estimates.statistics import Estimate
from raybench.analysis.measured import MeasuredStudy
from raybench.analysis.published import UNITS, Figure, fact, in_words, load_figures, sources
from raybench.analysis.results import StudyResults
from raybench.analysis.same_setting import scaling_first
from raybench.analysis.summary import model_name
from raybench.analysis.trained_group import TrainedGroup, over_seeds
from raybench.analysis.trained_run import TrainedRun
from raybench.records.record import TrialRecord
from raybench.records.trainings import Epoch
from raybench.report.format import aligned, count, epochs_words, figures
from raybench.report.tables.base import NONE, Column, Table, empty_table, known, make_table
from raybench.spec.counted import counted

TITLE = "Published and measured"
BY_STEPS = " †"
FIRST = ("speedup", "efficiency", "throughput", "epoch_time", "total_time", "accuracy")  # readers look here
TRAINED = ("epoch_time", "total_time")  # by a training where there is one, else by the steps

Value = Callable[[MeasuredStudy, TrialRecord], Estimate | None]


def _of_waterfall(name: str) -> Value:
    def find(results: MeasuredStudy, record: TrialRecord) -> Estimate | None:
        found = results.waterfalls[record.trial_id]
        value: Estimate | None = getattr(found, name) if found else None
        return value.as_share if value is not None and name.endswith("fraction") else value

    return find


# By quantity: what a trial of steps says of it. What the summary and the tables of phases, cost and energy
# say in other words (phases' shares, prices, savings) stays in the file alone.
OF_STEPS: dict[str, Value] = {
    "step_time": lambda results, record: results.told[record.trial_id].step_time_s,
    "throughput": lambda results, record: results.told[record.trial_id].throughput_samples_per_s,
    "speedup": lambda results, record: results.scaling(record).speedup,
    "efficiency": lambda results, record: results.scaling(record).efficiency,
    "communication_fraction": _of_waterfall("communication_fraction"),
    "overhead_fraction": _of_waterfall("t_comm_fraction"),  # all that more devices add to a step
    "communication_time": _of_waterfall("replay_s"),
    "compute_to_communication": _of_waterfall("compute_to_communication"),
    "compute_time": lambda results, record: (
        found.parts.ideal if (found := results.waterfalls[record.trial_id]) else None
    ),
}
OF_EPOCH: dict[str, Callable[[Epoch], float | None]] = {
    "loss": lambda epoch: epoch.train_loss,
    "train_loss": lambda epoch: epoch.train_loss,
    "test_loss": lambda epoch: epoch.test_loss,
    "train_accuracy": lambda epoch: epoch.train_accuracy,
    "accuracy": lambda epoch: epoch.test_accuracy,
}


@dataclass(frozen=True)
class Row:
    """A published figure, of a range both ends, and what was measured of it."""

    low: Figure  # the only one, where there is no range
    high: Figure
    record: TrialRecord | None
    value: Estimate | None  # in the units of a record; n < 3 of seeds: it has no interval
    is_by_steps: bool = False


def published_table(results: StudyResults) -> Table:
    """The published figures that this study measured too; empty for a study that repeats no write-up."""
    published = load_figures(results.study.name)
    rows = _rows(results, published)
    measured = [row for row in rows if row.value is not None]
    if not measured:
        return empty_table(TITLE)
    measured.sort(key=lambda row: FIRST.index(row.low.quantity) if row.low.quantity in FIRST else len(FIRST))
    known_sources = sources()
    who = "; ".join(known_sources[name] for name in dict.fromkeys(each.source for each in published))
    caption = (
        f"Published by others: {who}. Their hardware is not this one: nothing follows from a difference. "
        "Measured: mean with 95% interval over n rounds, of trained figures over n seeds."
        f"{_training_words(results, published)}"
    )
    if any(row.is_by_steps for row in measured):
        caption += f"{BY_STEPS}: from the throughput of steps, without evaluation."
    kind = "GPU" if results.complete[0].config.device == "cuda" else "CPU worker"

    def here(row: Row) -> str:
        assert row.record is not None
        config = row.record.config
        return f"{counted(config.world_size, kind)}; batch {config.batch_size:,}; {model_name(row.record)}"

    columns: list[Column[Row]] = [
        Column("quantity", _quantity_words),
        Column("published", _published_words, right=True),
        Column("measured", _measured_words),
        Column("n", lambda row: known(row.value, count) if _has_interval(row) else NONE, right=True),
        Column("there", lambda row: _there_words(row.low), stays=True),
        Column("here", here, stays=True),
        Column("which was", lambda row: ", ".join(filter(None, [row.low.origin, row.low.note]))),
    ]
    return make_table(TITLE, caption, columns, measured)


def _rows(results: StudyResults, published: Sequence[Figure]) -> list[Row]:
    """Measured quantities of a number of devices, each once, a range as one row."""
    find = _Trials(results, published)
    epochs, samples = fact(published, "epochs"), results.epoch_samples or fact(published, "samples")
    if results.study.training:
        epochs = results.study.training.epochs
    ends: dict[tuple[object, ...], Row] = {}
    for figure in published:
        known_here = figure.quantity in (*OF_STEPS, *OF_EPOCH, *TRAINED)
        if figure.world_size is None or figure.origin == "chosen" or not known_here:
            continue
        end = (*_of(figure), figure.source, figure.table, figure.hardware)
        if figure.bound == "high" and end in ends:
            ends[end] = replace(ends[end], high=figure)
        elif (record := find.trial(figure)) is not None:
            value, is_by_steps = _value(results, find, figure, record, epochs, samples)
            key = end if figure.bound else (*end, figure.words)
            ends[key] = Row(figure, figure, record, value, is_by_steps)
    once: dict[tuple[object, ...], Row] = {}
    for row in ends.values():
        once.setdefault((*_of(row.low), _published_words(row)), row)
    return list(once.values())


def _of(figure: Figure) -> tuple[object, ...]:
    """What a figure is of."""
    return (
        figure.quantity, figure.of, figure.strategy, figure.world_size, figure.batch_size, figure.epoch
    )  # fmt: skip


class _Trials:
    """Which trial and which training stand next to a published figure.

    Where the figures' world sizes were not measured at all, the largest one measured stands in for the
    smallest of theirs. So with batches: the largest for the largest, the second for the second.
    """

    def __init__(self, results: StudyResults, published: Sequence[Figure]) -> None:
        aside = ("confirmation", "verification")
        self._results = results
        self._records = [each for each in results.complete if each.request.role not in aside]
        self._training = results.training
        theirs = {each.world_size for each in published if each.world_size and each.world_size > 1}
        ours = {each.config.world_size for each in results.complete if each.config.world_size > 1}
        apart = theirs and ours and not theirs & ours
        self._sizes = {min(theirs): max(ours)} if apart else {}
        self._batches = {size: self._batch_stand_in(size, published) for size in {1, *theirs}}

    def _at(self, world_size: int) -> list[TrialRecord]:
        size = self._sizes.get(world_size, world_size)
        return [each for each in self._records if each.config.world_size == size]

    def _batch_stand_in(self, world_size: int, published: Sequence[Figure]) -> dict[int, int]:
        theirs = {each.batch_size for each in published if each.world_size == world_size and each.batch_size}
        ours = {each.config.batch_size for each in self._at(world_size)}
        if theirs & ours:
            return {}
        return dict(zip(sorted(theirs, reverse=True), sorted(ours, reverse=True), strict=False))

    def trial(self, figure: Figure) -> TrialRecord | None:
        """Of several settings the one nearest to the study's default."""
        assert figure.world_size is not None
        batch = figure.batch_size and self._batches[figure.world_size].get(
            figure.batch_size, figure.batch_size
        )
        fitting = [
            each
            for each in self._at(figure.world_size)
            if (each.config.world_size == 1 or figure.strategy in (None, each.config.setting.strategy))
            and batch in (None, each.config.batch_size)
        ]
        learned = figure.epoch is not None or figure.quantity in OF_EPOCH
        wants_training = learned or figure.quantity in TRAINED or figure.of in TRAINED
        trained = [each for each in fitting if each.training is not None] if wants_training else []
        steps = [] if learned else [each for each in fitting if each.steps is not None]
        default = default_setting(self._results.study)
        return min(
            scaling_first(trained or steps),
            key=lambda record: len(record.config.setting.differences(default)),
            default=None,
        )

    def group(self, record: TrialRecord) -> TrainedGroup | None:
        """The training of ``record`` with all seeds."""
        groups = self._training.groups if self._training else ()
        return next((each for each in groups if any(run.record is record for run in each.runs)), None)


def _value(
    results: StudyResults,
    find: _Trials,
    figure: Figure,
    record: TrialRecord,
    epochs: float | None,
    samples: float | None,
) -> tuple[Estimate | None, bool]:
    """The figure's quantity in a trial, and whether it follows from its steps."""
    quantity, group = figure.quantity, find.group(record)
    if quantity in OF_EPOCH or figure.epoch is not None:
        bounds = SHARE if quantity.endswith("accuracy") else POSITIVE
        return over_seeds((_learned(run, figure) for run in group.runs), bounds) if group else None, False
    if quantity in OF_STEPS:
        if group is None:
            return OF_STEPS[quantity](results, record), False
        each = results.training.comparison(group) if results.training else None
        if each is None or quantity != "speedup":
            return None, False
        return each.epoch_speedup if figure.of == "epoch_time" else each.total_speedup, False
    epoch_s = group.epoch_time_s if group else None
    if epoch_s is None and samples and record.steps is not None:
        rate = results.told[record.trial_id].throughput_samples_per_s
        epoch_s = epochs_time(record, samples, 1, rate)
    if quantity == "epoch_time" or epoch_s is None or epochs is None:
        return epoch_s if quantity == "epoch_time" else None, group is None
    return (group.total_s if group else None) or epoch_s.scaled(epochs), group is None


def _learned(run: TrainedRun, figure: Figure) -> float | None:
    """The figure's quantity with one seed, in its epoch, else in the last."""
    number = figure.epoch or len(run.epochs)
    epoch = next((each for each in run.epochs if each.epoch == number), None)
    if epoch is None:
        return None
    return epoch.train_s if figure.quantity == "epoch_time" else OF_EPOCH[figure.quantity](epoch)


def _training_words(results: StudyResults, published: Sequence[Figure]) -> str:
    """How long was trained here, and there: of another number of samples an epoch says little."""
    spec = results.study.training
    if spec is None or results.training is None:
        return ""
    samples = results.epoch_samples
    theirs = [(fact(published, name), name) for name in ("epochs", "samples")]
    there = " of ".join(f"{value:,.0f} {name}" for value, name in theirs if value)
    here = epochs_words(spec.epochs) + (f" of {samples:,.0f} samples" if samples else "")
    return f" Trained here: {here}{f'; published: {there}' if there else ''}."


def _quantity_words(row: Row) -> str:
    figure = row.low
    words = figure.quantity.replace("_", " ").replace("speedup", "speed-up")
    if figure.of:
        words += f" of {figure.of.replace('_', ' ')}"
    return words if figure.epoch is None else f"{words}, epoch {figure.epoch}"


def _published_words(row: Row) -> str:
    """The figure as printed, of a range both ends: "120 to 150 ms"."""
    if row.low is row.high:
        return {"low": "at least ", "high": "at most "}.get(row.low.bound, "") + row.low.words
    return f"{row.low.printed} to {row.high.words}"


def _has_interval(row: Row) -> bool:
    return row.value is not None and row.value.low < row.value.high


def _measured_words(row: Row) -> str:
    """In the figure's unit; a time too small or too large for it in s."""
    assert row.value is not None
    unit = row.low.unit
    value, mark = row.value.scaled(1 / UNITS[unit]), BY_STEPS if row.is_by_steps else ""
    if unit in ("h", "min", "ms") and not 0.1 <= abs(value.value) < 1000:
        unit, value = "s", row.value
    if not _has_interval(row):
        return in_words(figures(value.value), unit) + mark
    words, low, high = aligned(value.value, value.low, value.high)
    return f"{in_words(words, unit)} [{low}, {high}]{mark}"


def _there_words(figure: Figure) -> str:
    """On which devices, with which batch and model."""
    said = [
        figure.strategy or "strategy not said",
        figure.hardware or counted(figure.world_size or 1, "device"),
        f"batch {figure.batch_size:,}" if figure.batch_size else "batch not said",
        figure.model or "model not said",
    ]
    return "; ".join(said)
