"""What a training trial goes on from: model, optimizer and generators of all ranks, written by the leader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from raybench.errors import InvalidTrialError
from raybench.records.requests import TrainingRequest
from raybench.records.trainings import Epoch
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device
from raybench.worker.strategies.sharding import gathered, is_sharded, placed_as
from raybench.worker.strategies.stepper import Stepper
from raybench.worker.training.checkpoints import Checkpoints, random_state, set_random_state


class SavedTraining:
    """One rank's part in writing and reading the checkpoints of a trial; all its calls are collective.

    A checkpoint has whole tensors, whatever the strategy: shards are put together on the leader, and
    distributed again. Only the leader holds them whole.
    """

    def __init__(
        self, request: TrainingRequest, team: Team, device: Device, checkpoints: Checkpoints | None
    ) -> None:
        """``checkpoints``: on the leader, where they are asked for."""
        self._request, self._team, self._device = request, team, device
        self._checkpoints = checkpoints

    def save(self, stepper: Stepper, epochs: Sequence[Epoch], steps: int) -> float:
        """Seconds that it took on the slowest rank; a full disk ends the trial on all."""
        began = perf_counter()
        leads, failure = self._team.leads, None
        random_states = self._team.gather(random_state(self._device))
        model = gathered(stepper.inner.state_dict(), keep=leads)
        optimizer = gathered(stepper.optimizer.state_dict(), keep=leads)
        if self._checkpoints is not None:
            state = {
                "trial_id": self._request.trial_id,
                "epochs": [epoch.model_dump(mode="json") for epoch in epochs],
                "steps": steps,
                "model": model,
                "optimizer": optimizer,
                "scaler": stepper.scaler.state_dict(),
                "random": random_states,
            }
            try:
                self._checkpoints.save(state, epochs[-1].epoch)
            except OSError as error:
                failure = error
        self._team.agree(failure)
        return float(max(self._team.gather(perf_counter() - began)))

    def resume(self, stepper: Stepper) -> list[Epoch]:
        """Put ``stepper`` to where the last checkpoint has it: the epochs until there, none without one."""
        state, shapes = None, None
        failure: Exception | None = None
        if self._checkpoints is not None:
            try:
                state = self._checkpoints.last()
                if state is not None and state["trial_id"] != self._request.trial_id:
                    raise InvalidTrialError(
                        f"the checkpoint is of trial {state['trial_id']}, not of this one"
                    )
                shapes = _change_parts(stepper, state, _shape) if state is not None else None
            except (KeyError, IndexError) as error:
                failure = _of_another(error)
            except Exception as error:
                failure = error
        self._team.agree(failure)
        states = [shapes]
        if self._team.size > 1:
            dist.broadcast_object_list(states, src=self._team.ranks[0], group=self._team.control)
        if states[0] is None:
            return []
        return self._restore(stepper, states[0] if state is None else state)

    def _restore(self, stepper: Stepper, state: dict[str, Any]) -> list[Epoch]:
        epochs, failure = list[Epoch](), None
        try:
            sharded = _change_parts(stepper, state, _shard)
            stepper.inner.load_state_dict(sharded["model"])
            stepper.optimizer.load_state_dict(sharded["optimizer"])
            if stepper.scaler.is_enabled():
                stepper.scaler.load_state_dict(state["scaler"])
            epochs = [Epoch.model_validate(epoch) for epoch in state["epochs"]]
            set_random_state(state["random"][self._team.rank], self._device)
        except (RuntimeError, KeyError, ValueError, IndexError) as error:
            failure = _of_another(error)
        self._team.agree(failure)
        return epochs


def _of_another(error: Exception) -> InvalidTrialError:
    line = str(error).strip().splitlines()[0]
    return InvalidTrialError(f"the checkpoint is of another model or optimizer: {line}")


def _change_parts(
    stepper: Stepper, state: dict[str, Any], change: Callable[[torch.Tensor, Any], Any]
) -> dict[str, Any]:
    """The state with ``change(part, value)`` for what belongs to a part of the model that may be sharded.

    Of an optimizer's state that is what has the shape of its parameter, as moments have.
    """
    parts, model = stepper.inner.state_dict(), state["model"]
    parameters = [parameter for group in stepper.optimizer.param_groups for parameter in group["params"]]
    optimizer = {
        number: {
            name: change(parameters[number], value) if _is_like(value, parameters[number]) else value
            for name, value in values.items()
        }
        for number, values in state["optimizer"]["state"].items()
    }
    return {
        **state,
        "model": {
            name: change(parts[name], value) if name in parts else value for name, value in model.items()
        },
        "optimizer": {**state["optimizer"], "state": optimizer},
    }


def _shape(part: Any, value: Any) -> Any:
    """A tensor without its values, where the leader distributes the shards."""
    return value.to("meta") if is_sharded(part) else value


def _shard(part: Any, value: Any) -> Any:
    return placed_as(part, value) if is_sharded(part) else value


def _is_like(value: Any, parameter: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == parameter.shape
