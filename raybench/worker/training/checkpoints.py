"""What a training writes: checkpoints to resume from, each whole or not there, and the trained model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from raybench.errors import InvalidTrialError, first_line
from raybench.records.results import Epoch
from raybench.records.whole_files import replace_directory, replace_whole
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.sharding import gathered, is_sharded, placed_as
from raybench.worker.strategies.stepper import Stepper


class SavedTraining:
    """One rank's part in writing and reading the checkpoints of a trial; all its calls are collective.

    A checkpoint has whole tensors, whatever the strategy: shards are put together on the leader, and
    distributed again. Only the leader holds them whole.
    """

    def __init__(self, team: Team, device: Device, folder: Path | None) -> None:
        """``folder``: of the checkpoint, on the leader, if the study wants one."""
        self._team, self._device, self._folder = team, device, folder

    def save(self, stepper: Stepper, epochs: Sequence[Epoch]) -> None:
        """Write what a resume needs; a full disk ends the trial on all ranks."""
        leads = self._team.leads
        random_states = self._team.gather(random_state(self._device))
        model = gathered(stepper.inner.state_dict(), keep=leads)
        optimizer = gathered(stepper.optimizer.state_dict(), keep=leads)

        def write() -> None:
            if self._folder is not None:
                state = {
                    "epochs": [epoch.model_dump(mode="json") for epoch in epochs],
                    "model": model,
                    "optimizer": optimizer,
                    "scaler": stepper.scaler.state_dict(),
                    "random": random_states,
                }
                save_checkpoint(self._folder, state)

        self._team.agreed(write)

    def resume(self, stepper: Stepper) -> list[Epoch]:
        """Put ``stepper`` to where the last checkpoint has it: the epochs until there, none without one."""

        def read() -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
            state = last_checkpoint(self._folder) if self._folder is not None else None
            if state is None:
                return None, None
            with _of_this_model():
                # without the values of what the leader distributes
                return state, _with_sharded(stepper, state, lambda part, value: value.to("meta"))

        state, shapes = self._team.agreed(read)
        if self._team.size > 1:  # on one device it holds every value
            shapes = self._team.from_leader(shapes)
        saved = shapes if state is None else state
        if saved is None:
            return []

        def restored() -> list[Epoch]:
            with _of_this_model():
                sharded = _with_sharded(stepper, saved, placed_as)
                stepper.inner.load_state_dict(sharded["model"])
                stepper.optimizer.load_state_dict(sharded["optimizer"])
                if stepper.scaler.is_enabled():
                    stepper.scaler.load_state_dict(saved["scaler"])
                set_random_state(saved["random"][self._team.rank], self._device)
                return [Epoch.model_validate(epoch) for epoch in saved["epochs"]]

        return self._team.agreed(restored)


@contextmanager
def _of_this_model() -> Iterator[None]:
    """Raise ``InvalidTrialError`` where a checkpoint does not fit."""
    try:
        yield
    except (RuntimeError, KeyError, ValueError, IndexError) as error:
        words = f"the checkpoint is of another model or optimizer: {first_line(error)}"
        raise InvalidTrialError(words) from error


def _with_sharded(
    stepper: Stepper, state: dict[str, Any], change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> dict[str, Any]:
    """The state with ``change(part, value)`` for what belongs to a part of the model that is sharded.

    Of an optimizer's state that is what has the shape of its parameter, as moments have.
    """

    def changed(part: Any, value: Any) -> Any:
        fits = is_sharded(part) and isinstance(value, torch.Tensor) and value.shape == part.shape
        return change(part, value) if fits else value

    parts = stepper.inner.state_dict()
    parameters = [parameter for group in stepper.optimizer.param_groups for parameter in group["params"]]
    optimizer = {
        number: {name: changed(parameters[number], value) for name, value in values.items()}
        for number, values in state["optimizer"]["state"].items()
    }
    return {
        **state,
        "model": {name: changed(parts.get(name), value) for name, value in state["model"].items()},
        "optimizer": {**state["optimizer"], "state": optimizer},
    }


STATE = "state.pt"


def last_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The state after the last epoch that was written to ``folder``; None without one.

    Raises ``InvalidTrialError`` for a file that cannot be read.
    """
    path = folder / STATE
    if not path.exists():
        return None
    try:
        return cast(dict[str, Any], torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:
        raise InvalidTrialError(
            f"checkpoint {path} cannot be read ({type(error).__name__}): remove it to begin again"
        ) from error


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """When this returns the checkpoint is on the disk: the file is replaced, whole or as it was before."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_whole(folder / STATE, lambda file: torch.save(state, file))


def random_state(device: Device) -> dict[str, Any]:
    """Where every generator of this rank stands, in types that ``torch.load`` trusts."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss),
        "python": random.getstate(),
        "device": device.random_state(),
    }


def set_random_state(state: dict[str, Any], device: Device) -> None:
    """Put every generator of this rank back to where ``random_state`` found it."""
    torch.set_rng_state(state["torch"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    if state.get("device") is not None:  # older checkpoints of CPUs lack it
        device.set_random_state(state["device"])


WEIGHTS = "model.safetensors"


def keep_model(stepper: Stepper, models: StrategyModels, team: Team, place: Path | None) -> None:
    """Write the model that ``stepper`` trained to the directory ``place``, on the leader. A collective call.

    Raises ``AgreedFailure`` where that fails.
    """
    state = gathered(stepper.inner.state_dict(), keep=team.leads) if models.is_sharded else {}

    def write() -> None:
        if not team.leads:
            return
        if place is None:
            raise FileNotFoundError("there is no results directory")
        module = stepper.inner
        if models.is_sharded:
            module = models.copies.with_own_weights()
            module.load_state_dict(state)
        replace_directory(place, lambda new: _write(module, new))

    team.agreed(write)


def _write(module: nn.Module, folder: Path) -> None:
    """As transformers writes its own models, with their configuration; of any other module the weights."""
    save_pretrained = getattr(module, "save_pretrained", None)
    if save_pretrained is not None:
        save_pretrained(folder)
        return
    from safetensors.torch import save_model  # with tied weights once, which save_file refuses

    save_model(module, str(folder / WEIGHTS))
