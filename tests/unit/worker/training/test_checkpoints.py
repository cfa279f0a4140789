"""Checkpoints that are whole or absent, and generators that go on where they stood."""

import random

import numpy as np
import pytest
import torch

from raybench.errors import InvalidTrialError
from raybench.worker.devices.device import Device
from raybench.worker.training.checkpoints import (
    STATE,
    _of_this_model,
    last_checkpoint,
    random_state,
    save_checkpoint,
    set_random_state,
)

CPU = Device()


def test_generators_go_on_where_they_stood(tmp_path):
    folder = tmp_path / "trial"
    save_checkpoint(folder, {"random": random_state(CPU)})
    expected = torch.rand(3).tolist(), random.random(), float(np.random.rand())
    state = last_checkpoint(folder)
    assert state is not None
    set_random_state(state["random"], CPU)
    assert (torch.rand(3).tolist(), random.random(), float(np.random.rand())) == expected


def test_the_last_good_checkpoint_is_kept(tmp_path):
    folder = tmp_path / "trial"
    assert last_checkpoint(folder) is None
    for epoch in (1, 2, 3):
        save_checkpoint(folder, {"epoch": epoch})
    assert [path.name for path in (tmp_path / "trial").iterdir()] == [STATE]
    assert last_checkpoint(folder) == {"epoch": 3}


def test_a_write_that_dies_in_the_middle_loses_its_epoch_only(tmp_path, monkeypatch):
    folder = tmp_path / "trial"
    save_checkpoint(folder, {"epoch": 1})

    def dies(state: object, file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError(5, "killed")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", dies)
        with pytest.raises(OSError, match="killed"):
            save_checkpoint(folder, {"epoch": 2})
    assert last_checkpoint(folder) == {"epoch": 1}
    save_checkpoint(folder, {"epoch": 2})
    assert last_checkpoint(folder) == {"epoch": 2}


def test_a_damaged_checkpoint_is_named(tmp_path):
    folder = tmp_path / "trial"
    save_checkpoint(folder, {})
    (tmp_path / "trial" / STATE).write_bytes(b"broken")
    with pytest.raises(InvalidTrialError, match=r"trial/state.pt cannot be read .* remove it to begin"):
        last_checkpoint(folder)


@pytest.mark.parametrize(
    ("error", "told"), [(ValueError("\n two sizes\nand more"), "two sizes"), (KeyError(), "KeyError")]
)
def test_what_does_not_fit_is_told_in_a_line_whatever_the_error_says(error, told):
    with pytest.raises(InvalidTrialError, match=rf"another model or optimizer: {told}$"), _of_this_model():
        raise error
