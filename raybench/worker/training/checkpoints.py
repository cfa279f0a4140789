"""Checkpoints of a training trial: a directory for the last good epoch, whole or not there at all."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from raybench.errors import InvalidTrialError
from raybench.worker.devices.base import Device
from raybench.worker.training.whole_directory import write_whole

STATE = "state.pt"
_NAME = re.compile(r"epoch-(\d{4,})")
_UNFINISHED = ".unfinished-"


class Checkpoints:
    """Below ``folder``: ``epoch-0003/state.pt``, written beside its place and moved there.

    ``finish`` is called with the directory before it is moved (the worker makes a checkpoint of Ray Train
    of it). Only the team's leader has one of these.
    """

    def __init__(self, folder: Path, finish: Callable[[Path], None] = lambda path: None) -> None:
        self._folder, self._finish = folder, finish

    def last(self) -> dict[str, Any] | None:
        """The state after the last epoch that was written whole; None without one.

        Removes what a killed process left half-written. Raises ``InvalidTrialError`` for a file that cannot
        be read.
        """
        self._remove_unfinished()
        folders = self._epochs()
        if not folders:
            return None
        path = folders[-1] / STATE
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise InvalidTrialError(
                f"checkpoint {path} cannot be read ({type(error).__name__}): remove it to begin anew"
            ) from error
        return state

    def save(self, state: dict[str, Any], epoch: int) -> None:
        """When this returns the checkpoint is on the disk, and the older one is gone."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._remove_unfinished()
        older = self._epochs()
        unfinished, place = self._folder / f"{_UNFINISHED}{epoch:04}", self._folder / f"epoch-{epoch:04}"

        def write(folder: Path) -> None:
            with (folder / STATE).open("wb") as file:
                torch.save(state, file)
            self._finish(folder)

        write_whole(place, unfinished, write)
        for path in older:
            if path != place:
                shutil.rmtree(path)

    def _epochs(self) -> list[Path]:
        paths = [path for path in self._folder.glob("epoch-*") if _NAME.fullmatch(path.name)]
        return sorted(paths, key=lambda path: int(path.name.removeprefix("epoch-")))

    def _remove_unfinished(self) -> None:
        for path in self._folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(path)


def random_state(device: Device) -> dict[str, Any]:
    """Where every generator of this rank stands, in types that ``torch.load`` trusts."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    state = {
        "torch": torch.get_rng_state(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss),
        "python": random.getstate(),
    }
    of_device = device.random_state()
    if of_device is not None:
        state["device"] = of_device
    return state


def set_random_state(state: dict[str, Any], device: Device) -> None:
    """Put every generator of this rank back to where ``random_state`` found it."""
    torch.set_rng_state(state["torch"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    if "device" in state:
        device.set_random_state(state["device"])
