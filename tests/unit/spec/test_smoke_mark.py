"""That a report knows what its study asked, and whether its sizes were those of ``--smoke``."""

from __future__ import annotations

from pathlib import Path

from raybench.spec.load import find_study, load_study, studies
from raybench.spec.user_input import to_toml

STUDY = """# Does it scale?
name = "mine"
[workload]
name = "mlp"
[smoke]
"knobs.batch_size" = 8
"""


def test_the_question_is_the_first_line_of_the_file_unless_it_is_set(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(STUDY)
    assert load_study(file).question == "Does it scale?"
    file.write_text(STUDY.replace('name = "mine"', 'name = "mine"\nquestion = "Is it fast?"', 1))
    assert load_study(file).question == "Is it fast?"
    assert all(load_study(path).question.endswith("?") for path in studies().values())


def test_what_a_results_directory_keeps_has_the_question(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(STUDY)
    kept = tmp_path / "study.toml"
    kept.write_text(to_toml(load_study(file)))
    assert load_study(kept).question == "Does it scale?"


def test_only_smoke_sizes_are_marked(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(STUDY)
    assert not load_study(file).is_smoke
    assert load_study(file, smoke=True).is_smoke
    file.write_text(STUDY.partition("[smoke]")[0])
    assert not load_study(file, smoke=True).is_smoke  # it has none
    assert load_study(find_study("default"), smoke=True).is_smoke
