"""What every report must hold, asked of the reports of recorded studies; and that each check can fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from raybench.analysis.findings.finding import FindingName
from raybench.records.csv_files import epoch_rows, rows_csv
from tests.corpus import invariants
from tests.corpus.invariants import Drawn
from tests.corpus.make import HERE, PATH, STUDIES, unpack

Draw = Callable[[str], Drawn]
MOST_BYTES = 200_000  # of the whole corpus


def test_figures_of_one_setting_are_one(drawn: Drawn) -> None:
    shown = list(invariants.shown_figures(drawn))
    assert len(shown) > 50  # the tables were found and read
    assert {each.kind for each in shown} >= invariants.OF_TRIALS
    assert invariants.different_figures(drawn) == []


def test_figures_of_a_setting_are_those_of_one_of_its_trials(drawn: Drawn) -> None:
    assert invariants.figures_without_a_trial(drawn) == []


def test_parts_add_up(drawn: Drawn) -> None:
    assert invariants.parts_that_do_not_add_up(drawn) == []


def test_values_lie_in_their_intervals(drawn: Drawn) -> None:
    assert len(list(invariants.estimates(drawn.results, ""))) > 400
    assert invariants.intervals_out_of_order(drawn) == []


def test_every_figure_of_the_answer_is_in_a_table(drawn: Drawn) -> None:
    assert invariants.figures_without_a_table(drawn) == []


def test_what_another_run_gives_is_that_of_its_row(drawn: Drawn) -> None:
    assert invariants.EXPECTED.search(drawn.answer)
    assert invariants.what_another_run_gives(drawn) == []
    planted = replace(drawn, answer=f"Expect 1 to 2% efficiency in another run. {drawn.answer}")
    assert len(invariants.what_another_run_gives(planted)) == 1


def test_the_first_line_is_the_headlines_row(drawn: Drawn) -> None:
    assert invariants.what_the_first_line_says(drawn) == []
    others = re.sub(r"\d+%", lambda found: f"{int(found[0][:-1]) - 1}%", drawn.answer, count=1)
    assert len(invariants.what_the_first_line_says(replace(drawn, answer=others))) == 1


def test_rows_are_the_records(drawn: Drawn) -> None:
    assert invariants.rows_that_do_not_match(drawn) == []


def test_what_is_no_number_is_not_printed(drawn: Drawn) -> None:
    assert invariants.not_numbers(drawn) == []


def test_tables_are_eight_columns_wide_at_most(drawn: Drawn) -> None:
    assert invariants.tables_that_are_too_wide(drawn) == []
    cells = "| a " * 9 + "|"
    planted = f"\n\n## Wide\n\n{cells}\n{cells.replace('a', '---')}\n{cells}\n\n9 columns.\n"
    wide = invariants.tables_that_are_too_wide(replace(drawn, markdown=drawn.markdown + planted))
    assert wide == ["Wide: 9 columns"]


def test_what_is_advised_was_measured(drawn: Drawn) -> None:
    assert invariants.advice_that_was_not_measured(drawn) == []
    assert invariants.devices_that_are_too_many(drawn) == []


# --- the checks can fail


def changed(text: str, old: str, new: str) -> str:
    """``text`` with a planted figure in the place of the first ``old``."""
    assert old in text
    return text.replace(old, new, 1)


def with_cell(summary: str, trial_id: str, column: str, value: Callable[[str], str]) -> str:
    """summary.csv with another cell."""
    lines = summary.splitlines()
    place = lines[0].split(",").index(column)
    for number, line in enumerate(lines):
        cells = line.split(",")
        if trial_id in cells:
            cells[place] = value(cells[place])
            lines[number] = ",".join(cells)
    return "\n".join(lines) + "\n"


@pytest.fixture
def default(draw: Draw) -> Drawn:
    return draw("default")


@pytest.fixture
def headline(default: Drawn) -> str:
    assert default.results.headline is not None
    return default.results.headline.trial_id


def shown_of_headline(drawn: Drawn, kind: str) -> str:
    """How the tables show a figure of the headline."""
    results = drawn.results
    assert results.headline is not None
    key = (results.headline_label, results.headline.config.world_size, kind)
    every = [each for each in invariants.shown_figures(drawn) if each.key == key]
    assert len(every) > 1
    return every[0].figure.text


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("kind", [*invariants.KINDS, invariants.SKEW])
def test_another_figure_in_one_table_is_found(draw: Draw, name: str, kind: str) -> None:
    drawn = draw(name)
    text = shown_of_headline(drawn, kind)
    figure = re.match(r"-?[\d,.]+", text)
    assert figure is not None
    another = re.sub(r"\d", lambda digit: str((int(digit[0]) + 5) % 10), figure[0], count=1)
    cell = f"| {text}"
    planted = replace(drawn, markdown=changed(drawn.markdown, cell, f"| {another}{text[figure.end() :]}"))
    assert any(kind in each for each in invariants.different_figures(planted))
    if kind in invariants.OF_TRIALS:
        assert any(kind in each for each in invariants.figures_without_a_trial(planted))


def test_a_figure_of_the_terminal_alone_is_found(default: Drawn) -> None:
    rows = [dict(row) for row in default.terminal.rows]
    rows[1]["samples/s"] = "12,345"
    planted = replace(default, terminal=replace(default.terminal, rows=tuple(rows)))
    assert len(invariants.different_figures(planted)) == 1


@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        ("skew_s", "the waterfall"),
        ("forward_s", "phases"),
        ("throughput_samples_per_s", "samples/s x step"),
        ("efficiency", "efficiency x devices"),
        ("baseline_step_time_s", "the baseline's step over the step"),
        ("ideal_s", "the ideal part over the step"),
    ],
)
def test_a_part_that_is_another_is_found(default: Drawn, headline: str, column: str, wrong: str) -> None:
    def by_a_thousandth(cell: str) -> str:
        return f"{1.001 * float(cell):.9g}"

    planted = replace(default, summary=with_cell(default.summary, headline, column, by_a_thousandth))
    assert any(wrong in each for each in invariants.parts_that_do_not_add_up(planted))


@pytest.mark.parametrize(
    ("row", "cell", "wrong"),
    [
        ("skew", 2, "Where the time goes"),
        ("forward", 3, "Phases"),
    ],
)
def test_a_part_of_a_table_that_is_another_is_found(default: Drawn, row: str, cell: int, wrong: str) -> None:
    line = next(each for each in default.markdown.splitlines() if each.startswith(f"| {row} |"))
    cells = line.split("|")
    cells[cell] = " 77.7 "
    planted = replace(default, markdown=changed(default.markdown, line, "|".join(cells)))
    assert any(each.startswith(wrong) for each in invariants.parts_that_do_not_add_up(planted))


def test_a_cost_that_is_not_time_times_price_is_found(draw: Draw) -> None:
    training = draw("training")
    points = training.results.costs
    first = points[0].cost
    assert first.money is not None
    dearer = replace(points[0], cost=replace(first, money=first.money.scaled(1.01)))
    planted = replace(training, results=replace(training.results, costs=(dearer, *points[1:])))
    assert any("time x price" in each for each in invariants.parts_that_do_not_add_up(planted))
    table = training.table("Cost")
    assert table is not None
    shown = table.rows[0]["cost"]
    planted = replace(training, markdown=changed(training.markdown, f"| {shown}", "| 9.99"))
    assert any("the table has 9.99" in each for each in invariants.parts_that_do_not_add_up(planted))


def test_a_loss_that_is_not_the_sum_of_its_shares_is_found(default: Drawn) -> None:
    waterfall = default.results.waterfall
    assert waterfall is not None
    lost = round(100 * (1 - waterfall.parts.ideal.value / waterfall.step_time_s.value))
    for share, number in ((lost, 0), (lost - 2, 1)):
        said = f"- **Lost**: {share}% of each step is lost.\n- **Scaling**"
        planted = replace(default, markdown=changed(default.markdown, "- **Scaling**", said))
        assert len(invariants.parts_that_do_not_add_up(planted)) == number


def test_a_value_outside_of_its_interval_is_found(default: Drawn, headline: str) -> None:
    summary = with_cell(default.summary, headline, "step_time_low_s", lambda _: "1")
    assert len(invariants.intervals_out_of_order(replace(default, summary=summary))) == 1
    markdown = changed(default.markdown, "## Causes", "9.5 ms [1.0, 2.0]\n\n## Causes")
    assert len(invariants.intervals_out_of_order(replace(default, markdown=markdown))) == 1
    scaling = default.results.scalings[headline]
    turned = replace(scaling, step_time_s=scaling.step_time_s.scaled(-1), speedup=None)
    results = replace(default.results, scalings=default.results.scalings | {headline: turned})
    assert invariants.intervals_out_of_order(replace(default, results=results)) == []
    step_s = replace(scaling.step_time_s, value=scaling.step_time_s.high * 1.01)
    outside = replace(scaling, step_time_s=step_s)
    results = replace(default.results, scalings=default.results.scalings | {headline: outside})
    assert len(invariants.intervals_out_of_order(replace(default, results=results))) == 1


@pytest.mark.parametrize(
    "figure", ["3333.33x", "-97.77%", "123,456 ms", "12,345,678 samples/s", "0.01x [0.00, 99.99]", "near"]
)
def test_a_figure_that_no_table_has_is_found(default: Drawn, figure: str) -> None:
    if figure == "near":  # the right value, and another interval
        figure = shown_of_headline(default, invariants.SPEEDUP)
        assert figure.endswith("]")
        figure = re.sub(r"\d\]$", lambda end: f"{(int(end[0][0]) + 5) % 10}]", figure)
    markdown = changed(default.markdown, "- **Scaling**: ", f"- **Scaling**: {figure}. ")
    assert len(invariants.figures_without_a_table(replace(default, markdown=markdown))) == 1
    planted = replace(default, answer=f"{figure}. {default.answer}")
    assert len(invariants.figures_without_a_table(planted)) == 1


def test_a_figure_that_no_finding_has_is_found(default: Drawn) -> None:
    planted = replace(
        default, answer=f"{default.answer} To try: use batch 7, predicted to be 77.77x as fast."
    )
    assert len(invariants.figures_without_a_table(planted)) == 1


def test_rows_without_records_and_records_without_rows_are_found(default: Drawn, headline: str) -> None:
    one_less = replace(default, records=default.records[1:])
    assert len(invariants.rows_that_do_not_match(one_less)) >= 2  # in the page, too
    summary = with_cell(default.summary, headline, "state", lambda _: "crashed")
    assert len(invariants.rows_that_do_not_match(replace(default, summary=summary))) == 1
    summary = with_cell(default.summary, headline, "step_time_s", lambda cell: f"{2 * float(cell):.9g}")
    assert len(invariants.rows_that_do_not_match(replace(default, summary=summary))) == 1


@pytest.mark.parametrize("printed", ["nan", "inf", "-inf", "NaN", "None", "nan ms", "[None, 2]"])
def test_what_is_no_number_is_found(default: Drawn, printed: str) -> None:
    markdown = changed(default.markdown, "## Causes", f"| {printed} |\n\n## Causes")
    assert len(invariants.not_numbers(replace(default, markdown=markdown))) == 1
    page = changed(default.page, "</h1>", f"</h1><p>it took {printed} of the step</p>")
    assert len(invariants.not_numbers(replace(default, page=page))) == 1


def test_advice_without_a_trial_is_found(default: Drawn) -> None:
    use = default.results.recommendation
    assert use is not None
    records = tuple(each for each in default.records if each.config != use.config)
    wrong = invariants.advice_that_was_not_measured(replace(default, records=records))
    assert f"{use.label} is recommended, and has no trial" in wrong
    markdown = re.sub(r"\bbatch_size=\d+", "batch_size=511", default.markdown, count=1)
    wrong = invariants.advice_that_was_not_measured(replace(default, markdown=markdown))
    assert wrong == ["the code to paste has batch_size 511, which was not measured"]


def test_a_best_without_a_trial_and_a_second_best_are_found(default: Drawn) -> None:
    for named, number in (("batch 511", 2), ("the default", 1)):
        said = f"Use {named}: 7.00 times the default's speed on 2 devices. {default.answer}"
        assert len(invariants.advice_that_was_not_measured(replace(default, answer=said))) == number


def test_advice_that_is_not_the_code_is_found(default: Drawn) -> None:
    assert default.results.recommendation is not None
    use = replace(default.results.recommendation, is_faster=True, label="fp32")
    for advised, number in (("bf16", 1), ("fp32", 0)):
        said = f"- **Now**: Use {advised}: 1.09 times the default's speed on 2 devices.\n- **Scaling**"
        planted = replace(
            default,
            markdown=changed(default.markdown, "- **Scaling**", said),
            results=replace(default.results, recommendation=use),
        )
        wrong = invariants.advice_that_was_not_measured(planted)
        assert sum(each.startswith("the answer advises ") for each in wrong) == number


def test_more_devices_than_are_fast_are_found(default: Drawn) -> None:
    assert default.results.device_advice is not None
    planted = replace(default, results=replace(default.results, device_advice=None))
    assert len(invariants.devices_that_are_too_many(planted)) == 1


# --- the corpus


def test_nothing_was_left_out(drawn: Drawn) -> None:
    assert FindingName.NOT_REACHED not in {each.name for each in drawn.results.diagnosis}


def test_epochs_are_those_of_the_records(draw: Draw) -> None:
    assert (HERE / "training" / "epochs.csv").read_text() == rows_csv(
        row for record in draw("training").records for row in epoch_rows(record)
    )


def test_the_two_nodes_are_two(draw: Draw) -> None:
    several = [each for each in draw("two_nodes").records if each.config.world_size == 2]
    assert {(each.nodes, tuple(each.hostnames)) for each in several} == {(2, ("node-1", "node-2"))}


@pytest.mark.parametrize("name", STUDIES)
def test_nothing_names_the_machine_that_measured_it(name: str, tmp_path: Path) -> None:
    files = sorted(each for each in unpack(name, tmp_path / name).iterdir())
    text = "\n".join(each.read_text() for each in files)
    paths = {path for quoted in re.findall(r'"(/[^"]*)"', text) for path in PATH.findall(quoted)}
    assert paths <= {"/data"}
    hosts = set(re.findall(r'"hostname": ?"([^"]*)"', text))
    hosts |= {
        host
        for listed in re.findall(r'"hostnames": ?\[([^]]*)\]', text)
        for host in re.findall(r"[^\", ]+", listed)
    }
    assert hosts <= {"node-1", "node-2"}


def test_the_corpus_is_small() -> None:
    assert sum(each.stat().st_size for name in STUDIES for each in (HERE / name).rglob("*")) < MOST_BYTES
