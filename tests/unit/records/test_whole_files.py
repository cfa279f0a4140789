"""A file that cannot be written is named itself, not the unfinished one next to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybench.records.whole_files import replace_whole


def test_an_error_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.mkdir()  # so it cannot be moved there
    with pytest.raises(IsADirectoryError) as failed:
        replace_whole(path, "words")
    assert failed.value.filename == str(path)
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
