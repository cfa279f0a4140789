"""The workloads: models and their data. ``build`` makes one from a study's ``[workload]``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from raybench.errors import RequestError
from raybench.spec.knobs import KnobValue
from raybench.spec.workloads import (
    CausalLMSpec,
    FactorySpec,
    LightningSpec,
    MLPSpec,
    OwnCode,
    ScriptSpec,
    TextSpec,
    TrainerSpec,
    VisionSpec,
    WorkloadSpec,
)
from raybench.workloads.protocol import Workload, dataset_of
from raybench.workloads.user_code import fails_in_words

__all__ = ["Checked", "Workload", "build", "check"]


def build(spec: WorkloadSpec, data: str | None, seed: int = 0) -> Workload:
    """The workload that ``spec`` describes; ``data`` is the directory with its data sets.

    ``seed``: of a function that makes its model itself, so that all ranks have the same one.

    Raises ``RequestError`` for a factory that does not import or does not follow the protocol.
    """
    if isinstance(spec, MLPSpec):
        from raybench.workloads.mlp import MLP

        return MLP(spec)
    if isinstance(spec, VisionSpec):
        from raybench.workloads.vision import Vision

        return Vision(spec, Path(data) if data else None)
    if isinstance(spec, TextSpec):
        from raybench.workloads.text import Text

        return Text(spec, Path(data) if data else None)
    if isinstance(spec, CausalLMSpec):
        from raybench.workloads.causal_lm import CausalLM

        return CausalLM(spec, Path(data) if data else None)
    assert not isinstance(spec, ScriptSpec), "a script is not a workload in this process"
    return _of_factory(spec) if isinstance(spec, FactorySpec) else _adapted(spec, seed)


class Checked(NamedTuple):
    """What a look at a workload finds before any worker starts."""

    samples: tuple[int, int] | None = None  # of training and test; None: nothing is trained
    knobs: tuple[tuple[str, KnobValue], ...] = ()  # the training's own; None: no value
    untried: str | None = None  # why no step was run


def check(
    spec: WorkloadSpec,
    data: str | None,
    *,
    is_trained: bool = False,
    device: str = "cpu",
    batch_size: int = 1,
) -> Checked:
    """Look at what can be told before any worker starts: imports, names, data, and a step of own code.

    ``batch_size``: of the default, on one device. Raises ``RequestError`` for what cannot be run.
    """
    workload = build(spec, data)
    own: Any = workload
    if isinstance(spec, LightningSpec):
        with fails_in_words(f"workload.lightning: prepare_data() of {spec.name}"):
            own.prepare()
    if isinstance(spec, VisionSpec):
        own.check()
    if isinstance(spec, TextSpec) and spec.checkpoint is not None:
        workload.model()
    train = _num_samples(workload, "train") if spec.input == "real" else None
    if train == 0:
        raise RequestError("workload: the data set has no training samples (received 0)")
    samples = (train, _num_samples(workload, "test")) if is_trained and train else None
    if not isinstance(spec, OwnCode):
        return Checked(samples)
    knobs: dict[str, KnobValue] = {} if isinstance(spec, FactorySpec) else own.knobs()
    from raybench.workloads.first_step import try_step

    untried = try_step(workload, spec, device, batch_size)
    return Checked(samples, tuple(knobs.items()), untried)


def _num_samples(workload: Workload, split: str) -> int:
    with fails_in_words(f'workload: dataset("{split}")'):
        return len(dataset_of(workload, split))


_ADAPTERS: dict[str, Workload] = {}


def _adapted(spec: TrainerSpec | LightningSpec, seed: int) -> Workload:
    """Made once for trials of one seed: a function that prepares its data may take seconds."""
    key = f"{spec.model_dump_json()} {seed}"
    if key not in _ADAPTERS:
        from raybench.workloads.seeding import seeded

        make, alone = _adapter(spec)
        with alone():  # its import too: arguments at the module's level look at the variables
            function = _function(spec)
        with _failing(spec), seeded(seed), alone():
            made = make(function(**spec.arguments), spec.name)
        _ADAPTERS.clear()
        _ADAPTERS[key] = made
    return _ADAPTERS[key]


def _adapter(
    spec: TrainerSpec | LightningSpec,
) -> tuple[Callable[[Any, str], Workload], Callable[[], AbstractContextManager[None]]]:
    """The class that adapts what the function returns, and what the function runs in."""
    if isinstance(spec, LightningSpec):
        from raybench.workloads.lightning_module import LightningWorkload

        return LightningWorkload, nullcontext
    from raybench.workloads.transformers_trainer import TrainerWorkload, alone

    return TrainerWorkload, alone


def _of_factory(spec: FactorySpec) -> Workload:
    function = _function(spec)
    with _failing(spec):
        workload = function(**spec.arguments)
    needed = ["model", "loss", "dataset" if spec.input == "real" else "batch"]
    with fails_in_words(f"workload.factory: what {spec.name} returned"):
        missing = [name for name in needed if not callable(getattr(workload, name, None))]
    if missing:
        raise RequestError(
            f"workload.factory: an object with the methods {', '.join(needed)}; {', '.join(missing)} missing "
            f"(received a {type(workload).__name__} from {spec.name})"
        )
    checked: Workload = workload
    return checked


def _failing(spec: OwnCode) -> AbstractContextManager[None]:
    return fails_in_words(f"workload.{spec.KEY}: {spec.name}", f" (arguments {spec.arguments!r})")


def _function(spec: OwnCode) -> Any:
    where = f"workload.{spec.KEY}"
    module_name, _, name = spec.name.partition(":")
    with fails_in_words(f"{where}: importing {module_name}"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # it is there, and a line of it imports what is not
            reported = f"a module that imports: {error} (received {spec.name!r})"
            raise RequestError(f"{where}: {reported}") from error
    function = getattr(module, name, None)
    if function is None:
        raise RequestError(f"{where}: {module_name} has no {name} (received {spec.name!r})")
    return function
