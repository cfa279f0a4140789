"""A directory takes its place when it is whole, and not before."""

from pathlib import Path

import pytest

from raybench.records.whole_files import replace_directory


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    place = tmp_path / "models" / "a"
    replace_directory(place, lambda new: (new / "old").touch())

    def fails(new: Path) -> None:
        (new / "half").touch()
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        replace_directory(place, fails)
    assert names(place) == ["old"]
    replace_directory(place, lambda new: (new / "new").touch())
    assert names(tmp_path) == ["models/a/new"]  # neither the old nor the half one


def test_what_is_written_has_another_name_until_it_is_whole(tmp_path):
    place = tmp_path / "a"

    def write(new: Path) -> None:
        assert new == tmp_path / ".unfinished-a"
        assert not place.exists()
        (new / "inner").mkdir()
        (new / "inner" / "file").write_text("whole")

    replace_directory(place, write)
    assert (place / "inner" / "file").read_text() == "whole"
