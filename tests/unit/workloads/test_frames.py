"""Where an error arose in the user's own code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import raybench
from raybench.worker.failures import AgreedFailure, RankFailure
from raybench.workloads.user_code import LONGEST_FRAME, frame_of, is_own

CODE = """
import json
import torch

def loss(width):
    return forward(width)

def forward(width):
    return torch.nn.functional.linear(torch.ones(2, 3), torch.ones(2, width))

def read():
    return json.loads("{")

def long():
    raise ValueError(LONG)
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the user's own, as Python finds it."""
    (tmp_path / "framed_model.py").write_text(CODE.replace("LONG", repr("x" * 300)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "framed_model", raising=False)
    import framed_model  # type: ignore[import-not-found]

    module: ModuleType = framed_model
    return module


def raised(call: str, model: ModuleType, *arguments: object) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        getattr(model, call)(*arguments)
    return caught.value.with_traceback(caught.value.__traceback__.tb_next)  # without this test's own frame


def test_the_innermost_frame_of_the_users_own(model: ModuleType) -> None:
    code = "return torch.nn.functional.linear(torch.ones(2, 3), torch.ones(2, width))"
    assert frame_of(raised("loss", model, 5)) == f"framed_model.py:9, in forward: {code}"
    assert frame_of(raised("read", model)) == 'framed_model.py:12, in read: return json.loads("{")'


def test_it_is_short(model: ModuleType) -> None:
    frame = frame_of(raised("long", model))
    assert len(frame) == LONGEST_FRAME
    assert frame.isprintable()


def test_without_own_frames_the_innermost_is_told() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    error = caught.value
    assert error.__traceback__ is not None
    assert ", in raw_decode: " in frame_of(error.with_traceback(error.__traceback__.tb_next))
    assert frame_of(ValueError("never raised")) == ""


def test_frames_of_torch_are_torchs(model: ModuleType) -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.nn.Linear(3, 2)(torch.ones(1, 4))
    assert frame_of(caught.value).startswith("tests/unit/workloads/test_frames.py:")


def test_an_agreed_failure_has_the_frame_of_the_rank_that_it_names(model: ModuleType) -> None:
    errors = [raised("read", model), MemoryError("none")]
    failures = [RankFailure.of(error, rank) for rank, error in enumerate(errors)]
    assert AgreedFailure(failures[:1]).frame == frame_of(errors[0])
    assert AgreedFailure(failures).frame == ""  # that of memory, which was never raised here


def test_a_module_beside_the_package_is_the_users_own() -> None:
    package = Path(raybench.__file__).parent
    assert not is_own(str(package / "study.py"))
    assert is_own(f"{package}_models/mine.py")
