"""A trained model, kept for use elsewhere: whole weights in safetensors, whatever the strategy was."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from raybench.worker.communicators import Team
from raybench.worker.failures import describe
from raybench.worker.strategies.models import StrategyModels
from raybench.worker.strategies.sharding import gathered
from raybench.worker.strategies.stepper import Stepper
from raybench.worker.training.whole_directory import write_whole

WEIGHTS = "model.safetensors"


def keep_model(stepper: Stepper, models: StrategyModels, team: Team, place: Path | None) -> str | None:
    """Write the model that ``stepper`` trained to the directory ``place``; why not, where that fails.

    The leader writes; ``place`` is its own. What is trained is not lost for a model that cannot be written.
    A collective call.
    """
    state = gathered(stepper.inner.state_dict(), keep=team.leads) if models.is_sharded else {}
    failure = None
    if team.leads:
        try:
            if place is None:
                raise FileNotFoundError("there is no results directory")
            module = stepper.inner
            if models.is_sharded:
                module = models.copies.with_own_weights()
                module.load_state_dict(state)
            write_whole(place, place.with_name(f".unfinished-{place.name}"), lambda new: _write(module, new))
        except Exception as error:
            failure = describe(error)
    failures: list[str | None] = team.gather(failure)
    return next((reason for reason in failures if reason), None)


def _write(module: nn.Module, folder: Path) -> None:
    """As transformers writes its own models, with their configuration; of any other module the weights."""
    save_pretrained = getattr(module, "save_pretrained", None)
    if save_pretrained is not None:
        save_pretrained(folder)
        return
    from safetensors.torch import save_model  # with tied weights once, which save_file refuses

    save_model(module, str(folder / WEIGHTS))
