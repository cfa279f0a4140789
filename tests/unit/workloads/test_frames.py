"""Where an error arose: the user's own code first, that of others folded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import raybench
from raybench.worker.failures import AgreedFailure, RankFailure
from raybench.workloads.user_code import LONGEST_FRAME, MOST_FRAMES, frames_of, package_of

CODE = """
import json
import torch

def loss(width):
    return forward(width)

def forward(width):
    return torch.nn.functional.linear(torch.ones(2, 3), torch.ones(2, width))

def read():
    return json.loads("{")

def deep(number):
    return deep(number - 1) if number else 1 / 0

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


def test_the_users_own_frames_come_first_the_innermost_of_them_before_its_caller(model: ModuleType) -> None:
    frames = frames_of(raised("loss", model, 5))
    code = "return torch.nn.functional.linear(torch.ones(2, 3), torch.ones(2, width))"
    assert frames == (
        f"framed_model.py:9, in forward: {code}",
        "framed_model.py:6, in loss: return forward(width)",
    )


def test_what_lies_below_them_is_one_line(model: ModuleType) -> None:
    own, below = frames_of(raised("read", model))
    assert own == 'framed_model.py:12, in read: return json.loads("{")'
    assert below.startswith("... 3 frames of Python below it: ")
    assert "json/decoder.py:" in below
    assert below.endswith(", in raw_decode")


def test_they_are_few_and_short(model: ModuleType) -> None:
    assert len(frames_of(raised("deep", model, 50))) == MOST_FRAMES
    (frame,) = frames_of(raised("long", model))
    assert len(frame) == LONGEST_FRAME
    assert frame.isprintable()


def test_without_own_frames_the_innermost_are_told() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    error = caught.value
    assert error.__traceback__ is not None
    frames = frames_of(error.with_traceback(error.__traceback__.tb_next))
    assert ", in raw_decode: " in frames[0]
    assert ", in loads: " in frames[-1]
    assert frames_of(ValueError("never raised")) == ()


def test_frames_of_torch_are_torchs(model: ModuleType) -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.nn.Linear(3, 2)(torch.ones(1, 4))
    own, below = frames_of(caught.value)
    assert own.startswith("tests/unit/workloads/test_frames.py:")
    assert below.startswith("... ")
    assert " of torch below it: torch/nn/modules/linear.py:" in below


def test_an_agreed_failure_has_the_frames_of_the_rank_that_it_names(model: ModuleType) -> None:
    errors = [raised("read", model), MemoryError("none")]
    failures = [RankFailure.of(error, rank) for rank, error in enumerate(errors)]
    assert AgreedFailure(failures[:1]).frames == frames_of(errors[0])
    assert AgreedFailure(failures).frames == ()  # that of memory, which was never raised here


def test_a_module_beside_the_package_is_the_users_own() -> None:
    package = Path(raybench.__file__).parent
    assert package_of(str(package / "study.py")) == "raybench"
    assert package_of(f"{package}_models/mine.py") == ""
