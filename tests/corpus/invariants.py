"""What must hold of every report, whatever was measured: each check returns what it found wrong."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property

from raybench.analysis.labels import difference_words
from raybench.analysis.results import StudyResults
from raybench.analysis.stats.statistics import Estimate
from raybench.records.record import TrialRecord
from raybench.report.answer import to_use
from tests.corpus.shown import (
    Figure,
    ShownTable,
    cell_of,
    exact,
    figure_of,
    figures_of,
    html_tables,
    markdown_tables,
    prose,
    visible,
)

CLOSE = 1e-6  # relative: parts that add up, of numbers with nine digits


@dataclass(frozen=True)
class Drawn:
    """A report as it was drawn, and what it was drawn from."""

    results: StudyResults
    records: tuple[TrialRecord, ...]
    markdown: str  # report.md
    page: str  # report.html
    diagnosis: str  # diagnosis.md
    summary: str  # summary.csv
    answer: str  # what the terminal ends with
    terminal: ShownTable

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """The rows of summary.csv."""
        return list(csv.DictReader(io.StringIO(self.summary)))

    @cached_property
    def tables(self) -> list[ShownTable]:
        """Every table: of the documents, and of the terminal."""
        return [*markdown_tables(self.markdown), *markdown_tables(self.diagnosis), self.terminal]

    @cached_property
    def every_trial(self) -> ShownTable:
        """The table of the page that has each trial's own figures."""
        return next(each for each in html_tables(self.page) if each.title == "Every trial")

    @cached_property
    def box(self) -> str:
        """The answer at the top of report.md."""
        lines = html.unescape(self.markdown).split("\n## ")[0].splitlines()
        return "\n".join(line for line in lines if line.startswith("- "))

    @cached_property
    def by_id(self) -> dict[str, TrialRecord]:
        """The record that counts of each trial."""
        return {record.trial_id: record for record in self.records}

    def table(self, title: str) -> ShownTable | None:
        """The table of report.md under this title."""
        return next((each for each in markdown_tables(self.markdown) if each.title == title), None)


# --- one setting, one figure


@dataclass(frozen=True)
class Shown:
    """One figure of one setting, and where it stands."""

    setting: str
    devices: int
    kind: str  # "step time, ms"
    figure: Figure
    place: str

    @property
    def key(self) -> Hashable:
        """Equal for what must be one figure."""
        return self.setting, self.devices, self.kind


STEP, RATE, SPEEDUP, EFFICIENCY = "step time, ms", "samples/s", "speed-up", "efficiency"
EXPOSED, EXPOSED_SHARE, SKEW = "communication, ms", "communication / T(n)", "skew, ms"
KINDS = (STEP, RATE, SPEEDUP, EFFICIENCY, EXPOSED)  # what several tables have
SAME_KIND = {
    "throughput, samples/s": RATE,
    "of it communication, ms": EXPOSED,
    "measured step, ms": STEP,
    "step time": STEP,
}
SOURCES = re.compile(
    r" \((?:in the rounds of \d+|in the confirmation|beside the default|in the search)\)| \*$"
)
OF_TRIAL = re.compile(r"From trial \w+ \((?P<setting>.*), (?P<devices>\d+) devices?\)")
TARGET = re.compile(r"World size (?P<devices>\d+)|on (?P<more>\d+) devices")


def different_figures(drawn: Drawn) -> list[str]:
    """Figures of one setting at one world size that differ between the tables of the report."""
    first, wrong = dict[Hashable, Shown](), list[str]()
    for each in shown_figures(drawn):
        known = first.setdefault(each.key, each)
        if not known.figure.is_same(each.figure):
            wrong.append(
                f"{each.kind} of {each.setting} on {each.devices}: {known.figure.text} in {known.place}, "
                f"{each.figure.text} in {each.place}"
            )
    return wrong


def shown_figures(drawn: Drawn) -> Iterator[Shown]:
    """What the tables say of each setting; the terminal's figures have no intervals."""
    for table in drawn.tables:
        if table.title in OF_HEADLINE:
            yield from OF_HEADLINE[table.title](drawn, table)
        elif any(cell_of(row, "setting") for row in table.rows):
            yield from _of_settings(drawn, table)
        elif any({"change", "winner", "configuration", "what if"} & row.keys() for row in table.rows):
            yield from _of_changes(drawn, table)


def _of_settings(drawn: Drawn, table: ShownTable) -> Iterator[Shown]:
    asked = TARGET.search(table.caption)
    for row in table.rows:
        devices = cell_of(row, "devices") or (asked and (asked["devices"] or asked["more"]))
        if not devices or not devices.isdigit():
            continue
        setting = SOURCES.sub("", cell_of(row, "setting") or "")
        for heading in (*KINDS, EXPOSED_SHARE, *SAME_KIND):
            yield from _shown(setting, int(devices), heading, cell_of(row, heading), table)


def _of_changes(drawn: Drawn, table: ShownTable) -> Iterator[Shown]:
    """Of rows that say what differs from the default, or the setting, at the target."""
    trial, target = OF_TRIAL.search(table.caption), drawn.results.target_world_size
    for row in table.rows:
        named = row.get("change") or row.get("winner") or row.get("configuration") or ""
        setting = settings_by_change(drawn).get(named, named)
        if "what if" in row:
            if trial is None or not row["what if"].startswith("as it is"):
                continue
            setting, target = trial["setting"], int(trial["devices"])
        for heading in (EFFICIENCY, SPEEDUP, "measured step, ms"):
            yield from _shown(setting, target, heading, cell_of(row, heading), table)


def _as_percent(ratio: Figure) -> Figure:
    """A ratio of throughputs as a gain in percent."""
    if ratio.unit == "%":
        return ratio
    ends = [None if end is None else 100 * (end - 1) for end in (ratio.value, ratio.low, ratio.high)]
    return Figure(100 * (ratio.value - 1), 100 * ratio.slack, "%", ends[1], ends[2], ratio.text)


def _of_waterfall(drawn: Drawn, table: ShownTable) -> Iterator[Shown]:
    kinds = {"skew": SKEW, "communication": EXPOSED, "step time": STEP}
    for row in table.rows:
        yield from _of_the_headline(drawn, kinds.get(row["part"]), row["ms"], table)
        if row["part"] == "ideal":
            yield from _of_one_device(drawn, row["ms"], table)


def _of_phases(drawn: Drawn, table: ShownTable) -> Iterator[Shown]:
    kinds = {"gradient synchronization": EXPOSED, "waiting for the slowest rank": SKEW, "step": STEP}
    for row in table.rows:
        many = next(cell for name, cell in row.items() if re.fullmatch(r"\d+ devices, ms", name))
        yield from _of_the_headline(drawn, kinds.get(row["phase"]), many, table)
        if row["phase"] == "step":
            yield from _of_the_headline(drawn, SPEEDUP, row["speed-up"], table)
            yield from _of_one_device(drawn, row["one device, ms"], table)


def _of_one_device(drawn: Drawn, cell: str, table: ShownTable) -> Iterator[Shown]:
    """The step of one device with the headline's batch, which is its share of the samples in weak scaling."""
    config = drawn.results.headline.config if drawn.results.headline else None
    if config is not None and config.scaling == "weak":
        for each in drawn.results.references:
            if each.config.world_size == 1 and each.config.same_question(config):
                yield from _shown(drawn.results.label(each), 1, STEP, cell, table)


def _of_the_headline(drawn: Drawn, kind: str | None, cell: str, table: ShownTable) -> Iterator[Shown]:
    headline = drawn.results.headline
    if kind is not None and headline is not None:
        yield from _shown(drawn.results.headline_label, headline.config.world_size, kind, cell, table)


OF_HEADLINE = {
    "Where the time goes": _of_waterfall,
    "Phases": _of_phases,
}


def _shown(setting: str, devices: int, heading: str, cell: str | None, table: ShownTable) -> Iterator[Shown]:
    found = figure_of(cell or "")
    if found is None:
        return
    if "at once" in table.caption:  # it says that its intervals, of many rows together, are wider
        found = replace(found, low=None, high=None)
    yield Shown(setting, devices, SAME_KIND.get(heading, heading), found, table.title)


def settings_by_change(drawn: Drawn) -> dict[str, str]:
    """The whole setting, by what differs from the default, of every trial at the target."""
    results = drawn.results
    return {
        difference_words(results.study, each.config): results.label(each)
        for each in results.measured
        if each.config.world_size == results.target_world_size
    }


def figures_without_a_trial(drawn: Drawn) -> list[str]:
    """Figures of a setting that no trial of it has in summary.csv, there or as its baseline."""
    own: dict[Hashable, list[Figure]] = {}
    for row in drawn.rows:
        setting, devices = drawn.results.label(drawn.by_id[row["trial_id"]]), int(row["world_size"])
        for kind, name, scale in OF_SUMMARY:
            if row[name]:
                own.setdefault((setting, devices, kind), []).append(exact(scale * float(row[name]), ""))
        if row["baseline_step_time_s"]:
            base_s = float(row["baseline_step_time_s"])
            own.setdefault(int(row["baseline_world_size"]), []).append(exact(1e3 * base_s, ""))
    wrong = []
    for each in shown_figures(drawn):
        known = list(own.get(each.key, ()))
        if each.kind == STEP:
            known += own.get(each.devices, ())
        if (each.kind == STEP or (each.kind in OF_TRIALS and each.devices > 1)) and not any(
            each.figure.is_same(other) for other in known
        ):
            wrong.append(
                f"{each.kind} of {each.setting} on {each.devices}: {each.figure.text} in {each.place}"
            )
    return wrong


OF_SUMMARY = (
    (STEP, "step_time_s", 1e3),
    (RATE, "throughput_samples_per_s", 1.0),
    (SPEEDUP, "speedup", 1.0),
    (EFFICIENCY, "efficiency", 100.0),
    (EXPOSED, "exposed_communication_s", 1e3),
    (EXPOSED_SHARE, "communication_fraction", 100.0),
    (SKEW, "skew_s", 1e3),
)
OF_TRIALS = frozenset(kind for kind, _, _ in OF_SUMMARY)


# --- parts


def parts_that_do_not_add_up(drawn: Drawn) -> list[str]:
    """Rows of summary.csv, and tables, of which the parts are not the whole."""
    found = [*_sums_of_summary(drawn), *_sums_of_waterfalls(drawn), *_sums_of_tables(drawn)]
    return [*found, *_costs(drawn), *_losses_of_answer(drawn)]


WATERFALL = ("ideal_s", "small_batch_s", "contention_s", "wrapper_s", "skew_s", "exposed_communication_s")
PHASES = ("data_s", "forward_s", "backward_s", "optimizer_s", "other_s")


def _sums_of_summary(drawn: Drawn) -> Iterator[str]:
    for row in drawn.rows:
        known = {name: float(cell) for name, cell in row.items() if _is_number(cell)}
        step_s, size = known.get("step_time_s"), int(row["world_size"])
        if step_s is None:
            continue
        divided = size > 1 and {"wrapper_s", "exposed_communication_s"} <= known.keys()
        waited = sum(known.get(name, 0) for name in WATERFALL[-2:]) if size > 1 else 0
        per_step = known["throughput_samples_per_s"] * step_s
        if divided:
            yield from _unequal(row, "the waterfall", sum(known.get(name, 0) for name in WATERFALL), step_s)
        if "forward_s" in known and (divided or size == 1):
            yield from _unequal(row, "phases", sum(known[name] for name in PHASES) + waited, step_s)
        steps = drawn.by_id[row["trial_id"]].steps
        if row["input"] == "synthetic":  # of real data the last batch of an epoch may be smaller
            yield from _unequal(row, "samples/s x step", per_step, known["global_batch_size"])
        elif steps is not None:
            yield from _unequal(row, "samples/s x step", per_step, steps.samples_per_step)
        if "speedup" in known:
            of_one = size / known["baseline_world_size"]
            yield from _unequal(row, "efficiency x devices", known["efficiency"] * of_one, known["speedup"])
        if known.get("baseline_world_size") == 1 and "speedup" in known:
            more = size if row["scaling"] == "weak" else 1
            over = known["baseline_step_time_s"] / step_s * more
            yield from _unequal(row, "the baseline's step over the step", over, known["speedup"])
        if divided:
            over = size * known["ideal_s"] / step_s
            yield from _unequal(row, "the ideal part over the step", over, known["speedup"])


def _unequal(row: dict[str, str], name: str, value: float, expected: float) -> Iterator[str]:
    if not math.isclose(value, expected, rel_tol=CLOSE):
        yield f"trial {row['trial_id']}: {name} {value:.9g}, expected {expected:.9g}"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _sums_of_waterfalls(drawn: Drawn) -> Iterator[str]:
    for trial_id, found in drawn.results.waterfalls.items():
        if found is None:
            continue
        parts_s = sum(part.value for part in found.parts.present().values())
        if not math.isclose(parts_s, found.step_time_s.value, rel_tol=CLOSE):
            yield f"trial {trial_id}: parts {parts_s:.9g} s, a step of {found.step_time_s.value:.9g} s"


def _sums_of_tables(drawn: Drawn) -> Iterator[str]:
    """The waterfall and the phases as they are shown, to within rounding."""
    if table := drawn.table("Where the time goes"):
        steps = {row["part"]: row for row in table.rows if "part" in row}
        whole = steps["step time"]
        parts = list(steps.values())[: list(steps).index("step time")]
        for heading in ("ms", "share"):
            yield from _rounded_sum(table.title, [row[heading] for row in parts], whole[heading])
    if table := drawn.table("Phases"):
        steps = {row["phase"]: row for row in table.rows}
        parts = [row for name, row in steps.items() if name not in ("step", "backward with synchronization")]
        for heading in (each for each in steps["step"] if each.endswith(", ms")):
            cells = [row[heading] for row in parts]
            yield from _rounded_sum(f"{table.title}, {heading}", cells, steps["step"][heading])


def _rounded_sum(name: str, cells: Iterable[str], whole: str) -> Iterator[str]:
    parts, total = [each for cell in cells if (each := figure_of(cell))], figure_of(whole)
    added = sum(each.value for each in parts)
    assert total is not None
    if abs(added - total.value) > 1.001 * (total.slack + sum(each.slack for each in parts)):
        yield f"{name}: the rows add up to {added:.6g}, the whole is {total.text}"


def _costs(drawn: Drawn) -> Iterator[str]:
    """Money is time x price, device time is time x devices; as values, and as they are shown."""
    price = drawn.results.study.cost.price_per_device_hour or 0
    for point in drawn.results.costs:
        cost = point.cost
        paid = cost.device_s.value * price / 3600
        where = f"a run with {point.label} on {point.at.world_size}"
        if not math.isclose(cost.device_s.value, cost.time_s.value * point.at.world_size, rel_tol=CLOSE):
            yield f"{where}: device time is not time x devices"
        if cost.money is not None and not math.isclose(cost.money.value, paid, rel_tol=CLOSE):
            yield f"{where}: costs {cost.money.value:.9g}, time x price is {paid:.9g}"
    table = drawn.table("Cost")
    for row in table.rows if table else ():
        yield from _shown_cost(drawn, row)


SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def _shown_cost(drawn: Drawn, row: dict[str, str]) -> Iterator[str]:
    """One row of the table: its own digits must agree with each other."""
    time, all_time = figure_of(row["time"]), figure_of(row.get("device-time", ""))
    devices, price = int(cell_of(row, "devices") or 0), drawn.results.study.cost.price_per_device_hour
    assert time is not None
    where = f"Cost of {cell_of(row, 'setting')} on {devices}"
    device_s, slack_s = (devices * each * SECONDS[time.unit] for each in (time.value, time.slack))
    if all_time is not None:
        shown_s, shown_slack_s = (each * SECONDS[all_time.unit] for each in (all_time.value, all_time.slack))
        if abs(device_s - shown_s) > 1.001 * (slack_s + shown_slack_s):
            yield f"{where}: {time.text} on {devices} devices is not {all_time.text}"
    money = figure_of(row.get("cost", ""))
    if money is not None and price:
        paid, slack = (each * price / 3600 for each in (device_s, slack_s))
        if abs(paid - money.value) > 1.001 * (slack + money.slack):
            yield f"{where}: {time.text} cost {paid:.4g}, the table has {money.text}"


def _losses_of_answer(drawn: Drawn) -> Iterator[str]:
    """What the answer says is lost is the step less its ideal part."""
    waterfall = drawn.results.waterfall
    for whole in re.findall(r"(\d+)% of each step is lost", drawn.box):
        lost = 1 - waterfall.parts.ideal.value / waterfall.step_time_s.value if waterfall else 0.0
        if abs(100 * lost - float(whole)) > 0.51:  # rounded to a percent
            yield f"{whole}% is lost in the answer, {lost:.2%} in the parts"
    share = waterfall.communication_fraction if waterfall else None
    for ends in COMMUNICATION.findall(drawn.box):
        known = [100 * max(end, 0.0) for end in (share.low, share.high)] if share else [0.0, 0.0]
        if any(abs(float(end) - each) > 0.51 for end, each in zip(ends, known, strict=True)):
            yield f"communication is {ends} in the answer, {known} in the parts"


COMMUNICATION = re.compile(r"ommunication is (\d+) to (\d+)%")

# --- tables

MOST_COLUMNS = 8


def tables_that_are_too_wide(drawn: Drawn) -> list[str]:
    """Tables with more columns than a page can paste."""
    every = [*drawn.tables, *html_tables(drawn.page)]
    return [f"{each.title}: {each.width} columns" for each in every if each.width > MOST_COLUMNS]


# --- intervals


def intervals_out_of_order(drawn: Drawn) -> list[str]:
    """Values outside of their intervals: in summary.csv, in the analysis, in every text."""
    wrong = []
    for row in drawn.rows:
        for name, low, high in (
            ("step_time_s", "step_time_low_s", "step_time_high_s"),
            ("efficiency", "efficiency_low", "efficiency_high"),
        ):
            ends = [row[each] for each in (low, name, high)]
            if all(ends) and not float(ends[0]) <= float(ends[1]) <= float(ends[2]):
                wrong.append(f"trial {row['trial_id']}: {name} {ends}")
    for where, estimate in estimates(drawn.results, "results"):
        if not estimate.low <= estimate.value <= estimate.high:
            wrong.append(f"{where}: {estimate}")
    for text in (drawn.markdown, drawn.diagnosis, visible(drawn.page), drawn.answer):
        for each in figures_of(prose(text)):
            if each.low is not None and each.high is not None and not each.low <= each.value <= each.high:
                wrong.append(f"{each.text}: the value is outside")
    return wrong


def estimates(value: object, where: str) -> Iterator[tuple[str, Estimate]]:
    """Every estimate in the values of an analysis; records and the study have none."""
    if isinstance(value, Estimate):
        yield where, value
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            if each.compare:  # what is none of its value, as the rule of a finding, leads back to the study
                yield from estimates(getattr(value, each.name), f"{where}.{each.name}")
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from estimates(each, f"{where}[{key}]")
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from estimates(each, f"{where}[{place}]")


# --- the answer


# What the answer may say that a finding has, and no table.
IN_FINDINGS = {
    r"To try: [^\n]*?\.(?=\s|$)": "a proposal, with its assumptions",
}
# What it may say that nothing else in the report has, and why.
NOWHERE = {
    r"a step may be up to \d+% shorter": "a bound, by the load while a trial ran",
    r"\d+% of each step is lost": "a sum of parts of the waterfall, which is checked as a sum",
    COMMUNICATION.pattern: "the ends of an interval, which are checked",
    r"ommunication is less than 1%": "a bound",
    r"ommunication is at most \d+%": "the end of an interval, whose table has milliseconds",
}


def figures_without_a_table(drawn: Drawn) -> list[str]:
    """Figures of the answer that no table of the report and no row of summary.csv has."""
    known, wrong = list(_known_figures(drawn)), list[str]()
    for name, text in (("the box", drawn.box), ("the terminal", drawn.answer)):
        text = re.sub(r"(\d) times (?=as fast|the efficiency)", r"\1x ", text)
        text = re.sub(r"([\d.]+ points) below", r"-\1", re.sub(r"([\d.]+ points) above", r"+\1", text))
        for pattern in NOWHERE:
            text = re.sub(pattern, " ", text)
        of_findings = [found for pattern in IN_FINDINGS for found in re.findall(pattern, text)]
        for pattern in IN_FINDINGS:
            text = re.sub(pattern, " ", text)
        more = [*known, *figures_of(_findings(drawn))]
        for said, there in ((text, known), ("; ".join(of_findings), more)):
            for each in figures_of(said):
                if _is_figure(each) and not any(_is_it(each, other) for other in there):
                    wrong.append(f"{name}: {each.text}")
    return wrong


def what_another_run_gives(drawn: Drawn) -> list[str]:
    """The efficiency that the answer expects of another run is that of the headline's row."""
    headline = drawn.results.headline
    row = next((each for each in drawn.rows if headline and each["trial_id"] == headline.trial_id), None)
    said = {found for text in (drawn.box, drawn.answer) for found in EXPECTED.findall(text)}
    if row is None or not row["efficiency_again_low"]:
        return [f"{ends} expected, and no row has it" for ends in said]
    own = [100 * float(row[f"efficiency_again_{end}"]) for end in ("low", "high")]
    return [
        f"{ends} expected, {own[0]:.1f} to {own[1]:.1f} in summary.csv"
        for ends in said
        if any(abs(float(end) - there) > 0.51 for end, there in zip(ends, own, strict=True))
    ]


def what_the_first_line_says(drawn: Drawn) -> list[str]:
    """Speed-up and efficiency of the answer are those of the headline's row."""
    headline = drawn.results.headline
    row = next((each for each in drawn.rows if headline and each["trial_id"] == headline.trial_id), None)
    if row is None or not row["efficiency"]:
        return []
    own = {"x": float(row["speedup"]), "%": 100 * float(row["efficiency"])}
    wrong = list[str]()
    for text in (drawn.box.partition("\n")[0], drawn.answer):
        text = re.sub(r"(\d) times as fast", r"\1x as fast", text)
        for unit, value in own.items():
            said = next((each for each in figures_of(text) if each.unit == unit), None)
            if said is None or not said.is_same(exact(value, unit)):
                wrong.append(f"{said and said.text} said, {value:.4g}{unit} in summary.csv")
    return wrong


EXPECTED = re.compile(r"[Ee]xpect (\d+) to (\d+)% efficiency")


def _findings(drawn: Drawn) -> str:
    """The text of causes and findings, in report.md."""
    sections = html.unescape(drawn.markdown).split("\n## ")
    return "\n".join(each for each in sections if each.startswith(("Causes", "Findings")))


def _is_figure(found: Figure) -> bool:
    """Whether it was measured: counts, batch sizes and world sizes have neither unit nor interval."""
    return found.low is not None or found.unit not in ("", "MiB")


def _is_it(said: Figure, other: Figure) -> bool:
    if said.low is None:
        return said.unit == other.unit and said.is_same(other)
    return other.low is not None and said.is_same(other)


def _known_figures(drawn: Drawn) -> Iterator[Figure]:
    for table in (*drawn.tables[:-1], drawn.every_trial):
        for each in table.figures:
            yield each
            if each.unit == "x" and each.low is not None:  # a ratio is said as a gain, too
                yield _as_percent(each)
            if each.unit == "%" and each.low is not None:  # and a gain as a ratio
                yield replace(each, unit="x", value=1 + each.value / 100, slack=each.slack / 100)
    for row in drawn.every_trial.rows:  # a speed-up is the efficiency times the devices
        devices, share = int(cell_of(row, "devices") or 0), figure_of(row["efficiency"])
        if share is not None and share.low is not None and share.high is not None:
            scale = devices / 100
            yield replace(
                share,
                unit="x",
                value=share.value * scale,
                slack=share.slack * scale,
                low=share.low * scale,
                high=share.high * scale,
            )
    for row in drawn.rows:
        for name, unit, factor in (
            ("step_time_s", "ms", 1e3),
            ("throughput_samples_per_s", "samples/s", 1.0),
            ("speedup", "x", 1.0),
            ("efficiency", "%", 100.0),
            ("communication_fraction", "%", 100.0),
            ("accuracy", "%", 100.0),
        ):
            if row[name]:
                yield exact(factor * float(row[name]), unit)
        if row["efficiency"]:  # the interval of the speed-up is that of the efficiency
            of_one = float(row["speedup"]) / float(row["efficiency"])
            low, high = (of_one * float(row[name]) for name in ("efficiency_low", "efficiency_high"))
            yield exact(float(row["speedup"]), "x", low, high)


# --- records and rows


def rows_that_do_not_match(drawn: Drawn) -> list[str]:
    """Rows of summary.csv, and of the table of every trial, that are not the records."""
    results, wrong = drawn.results, list[str]()
    key = results.fit.buckets.key
    states = {row["trial_id"]: row["state"] for row in drawn.rows}
    for trial_id, state in states.items():
        record = drawn.by_id.get(trial_id)
        if record is None:
            wrong.append(f"trial {trial_id} is in summary.csv and not in trials.jsonl")
        elif state != record.state:
            wrong.append(f"trial {trial_id}: {state} in summary.csv, {record.state} in its record")
    rows_of = Counter(
        key(drawn.by_id[trial_id].config)
        for trial_id in states
        if trial_id in drawn.by_id and drawn.by_id[trial_id].steps
    )
    for record in drawn.records:
        number = rows_of[key(record.config)] if record.steps else record.trial_id in states
        if number != 1:
            wrong.append(f"trial {record.trial_id}: {number} rows of summary.csv are of its setting")
    for row in drawn.rows:
        scaling = results.scalings.get(row["trial_id"])
        if scaling is not None and not math.isclose(
            float(row["step_time_s"]), scaling.step_time_s.value, rel_tol=1e-6
        ):
            wrong.append(
                f"trial {row['trial_id']}: {row['step_time_s']} s in summary.csv is not its setting's"
            )
    shown = {row["trial"]: row for row in drawn.every_trial.rows}
    if shown.keys() != {each.trial_id for each in drawn.records if each.request.kind != "probe"}:
        wrong.append("the table of every trial has others than trials.jsonl")
    for trial in results.trials:
        own = shown.get(trial.trial_id, {})
        for heading, value, scale in (
            (STEP, trial.step_time_s, 1e3),
            (RATE, trial.throughput_samples_per_s, 1.0),
        ):
            cell = figure_of(own.get(heading, ""))
            if (cell is not None) != (value is not None) and own:
                wrong.append(f"trial {trial.trial_id}: {heading} is in one of the page and the results only")
            elif cell is not None and value is not None and not cell.is_same(exact(scale * value, "")):
                wrong.append(f"trial {trial.trial_id}: {cell.text} in the page, {scale * value:.9g} measured")
    return wrong


# "None: the measurements are steady" and "None of the 3 others" are English
NOT_A_NUMBER = re.compile(
    r"[^\n]{0,30}(?<![\w-])(?:nan|NaN|[+-]?inf|None(?!:| of the \d))(?![\w-])[^\n]{0,30}"
)


def not_numbers(drawn: Drawn) -> list[str]:
    """Places where a value that is none was printed."""
    texts = {
        "report.md": prose(drawn.markdown),
        "report.html": visible(drawn.page),
        "diagnosis.md": prose(drawn.diagnosis),
        "summary.csv": drawn.summary,
        "the answer": drawn.answer,
    }
    return [f"{name}: {found}" for name, text in texts.items() for found in NOT_A_NUMBER.findall(text)]


# --- advice


def advice_that_was_not_measured(drawn: Drawn) -> list[str]:
    """Settings that are called best or recommended, and knobs in the code to paste, without a trial."""
    results, wrong = drawn.results, list[str]()
    measured = [each for each in drawn.records if each.state == "complete" and each.steps]
    ids = {each.trial_id for each in measured}
    chosen = results.winners
    for each in [*chosen, *([results.best] if results.best else [])]:
        if each.trial_id not in ids:
            wrong.append(f"{results.label(each)} is called best, and has no trial")
    use = results.recommendation
    if use is not None and not any(each.config == use.config for each in measured):
        wrong.append(f"{use.label} is recommended, and has no trial")
    changes = settings_by_change(drawn).keys() | set(settings_by_change(drawn).values())
    for named in _named_best(drawn):
        if named not in changes:
            wrong.append(f"the answer names {named!r}, which has no trial")
    if len(results.chosen) < 2 and len(set(_named_best(drawn))) > 1:
        wrong.append(f"several settings are called the best: {sorted(set(_named_best(drawn)))}")
    advised = _named_best(replace(drawn, answer=""))
    if advised and use is not None and use.is_faster and advised[0] != use.label:
        wrong.append(f"the answer advises {advised[0]!r}, the code is of {use.label!r}")
    return [*wrong, *_pasted_values(drawn, measured)]


def devices_that_are_too_many(drawn: Drawn) -> list[str]:
    """Fewer devices that are faster than those of the code to paste, with its setting or the headline's."""
    results, use = drawn.results, to_use(drawn.results)
    own = next((each for each in results.measured if use and each.config == use.config), None)
    if own is None or results.headline is None:
        return []
    most = results.scaling(own).throughput_samples_per_s.high
    return [
        f"{each.config.world_size} devices with {results.label(each)} are faster than {own.config.world_size}"
        for each in results.references
        if each.config.world_size < own.config.world_size
        if any(each.config.same_question(one.config) for one in (own, results.headline))
        if results.scaling(each).throughput_samples_per_s.low > most
    ]


BEST = re.compile(
    r"([Uu]se|On \d+ \w+) (?P<named>(?:[^.:*\n]|\.\d)*?)(:| is) [\d.,]+ times the default's speed",
    re.MULTILINE,
)


def _named_best(drawn: Drawn) -> list[str]:
    """What the box and the terminal call best."""
    return [found["named"] for text in (drawn.box, drawn.answer) for found in BEST.finditer(text)]


PASTED = {
    "batch_size": re.compile(r"\b(?:batch_size|per_device_train_batch_size)=(\d+)"),
    "bucket_cap_mb": re.compile(r"\b(?:ddp_)?bucket_cap_mb=([\d.]+)"),
    "gradient_accumulation": re.compile(r"\b(?:gradient_accumulation_steps|accumulate_grad_batches)=(\d+)"),
    "world_size": re.compile(r"\bnum_workers=(\d+)"),
    "devices of a node": re.compile(r"(?:\bdevices|--nproc-per-node)=(\d+)"),
}


def _pasted_values(drawn: Drawn, measured: Sequence[TrialRecord]) -> Iterator[str]:
    """Arguments of the code to paste that no trial had."""
    code = "\n".join(re.findall(r"^```.*?^```$", drawn.markdown, flags=re.DOTALL | re.MULTILINE))
    for knob, pattern in PASTED.items():
        for value in pattern.findall(code):
            if float(value) not in {_number_of(each, knob) for each in measured}:
                yield f"the code to paste has {knob} {value}, which was not measured"


def _number_of(record: TrialRecord, knob: str) -> float | None:
    config = record.config
    own = {
        "batch_size": config.batch_size,
        "world_size": config.world_size,
        "devices of a node": config.world_size / (record.nodes or 1),
    }
    value = own[knob] if knob in own else getattr(config.setting, knob)
    return float(value) if isinstance(value, int | float) else None
