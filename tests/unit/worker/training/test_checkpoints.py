"""Checkpoints that are whole or absent, and generators that go on where they stood."""

import random

import numpy as np
import pytest
import torch

from raybench.errors import InvalidTrialError
from raybench.worker.devices.device import Device
from raybench.worker.training.checkpoints import STATE, Checkpoints, random_state, set_random_state

CPU = Device()


def test_generators_go_on_where_they_stood(tmp_path):
    store = Checkpoints(tmp_path / "trial")
    store.save({"random": random_state(CPU)})
    expected = torch.rand(3).tolist(), random.random(), float(np.random.rand())
    state = store.last()
    assert state is not None
    set_random_state(state["random"], CPU)
    assert (torch.rand(3).tolist(), random.random(), float(np.random.rand())) == expected


def test_the_last_good_checkpoint_is_kept(tmp_path):
    store = Checkpoints(tmp_path / "trial")
    assert store.last() is None
    for epoch in (1, 2, 3):
        store.save({"epoch": epoch})
    assert [path.name for path in (tmp_path / "trial").iterdir()] == [STATE]
    assert store.last() == {"epoch": 3}


def test_a_write_that_dies_in_the_middle_loses_its_epoch_only(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path / "trial")
    store.save({"epoch": 1})

    def dies(state: object, file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError(5, "killed")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", dies)
        with pytest.raises(OSError, match="killed"):
            store.save({"epoch": 2})
    assert store.last() == {"epoch": 1}
    store.save({"epoch": 2})
    assert store.last() == {"epoch": 2}


def test_a_damaged_checkpoint_is_named(tmp_path):
    store = Checkpoints(tmp_path / "trial")
    store.save({})
    (tmp_path / "trial" / STATE).write_bytes(b"broken")
    with pytest.raises(InvalidTrialError, match=r"trial/state.pt cannot be read .* remove it to begin"):
        store.last()
