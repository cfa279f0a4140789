"""The workloads: models and their data. ``build`` makes one from a study's ``[workload]``."""

from __future__ import annotations

import importlib
from pathlib import Path

from raybench.errors import RequestError
from raybench.spec.workloads import (
    CausalLMSpec,
    FactorySpec,
    MLPSpec,
    TextSpec,
    VisionSpec,
    WorkloadSpec,
)
from raybench.workloads.protocol import Workload, dataset_of
from raybench.workloads.user_code import fails_in_words

__all__ = ["Workload", "build", "check", "num_samples"]


def build(spec: WorkloadSpec, data: str | None) -> Workload:
    """The workload that ``spec`` describes; ``data`` is the directory with its data sets.

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
    assert isinstance(spec, FactorySpec), "a script is no workload in this process"
    return _from_factory(spec)


def check(spec: WorkloadSpec, data: str | None) -> None:
    """Raise ``RequestError`` for what can be told before any worker starts: imports, names, data."""
    workload = build(spec, data)
    if isinstance(spec, TextSpec) and spec.checkpoint is not None:
        workload.model()
    if spec.input == "real" and not _num_samples(workload, "train"):
        raise RequestError("workload: the data set has no training samples (received 0)")


def num_samples(spec: WorkloadSpec, data: str | None) -> tuple[int, int]:
    """Training and test samples of real input; raises ``RequestError`` for data that is not there."""
    workload = build(spec, data)
    return _num_samples(workload, "train"), _num_samples(workload, "test")


def _num_samples(workload: Workload, split: str) -> int:
    with fails_in_words(f'workload: dataset("{split}")'):
        return len(dataset_of(workload, split))


def _from_factory(spec: FactorySpec) -> Workload:
    where = "workload.factory"
    module_name, _, function = spec.factory.partition(":")
    with fails_in_words(f"{where}: importing {module_name}"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # it is there, and a line of it imports what is not
            reported = f"a module that imports: {error} (received {spec.factory!r})"
            raise RequestError(f"{where}: {reported}") from error
    factory = getattr(module, function, None)
    if factory is None:
        raise RequestError(f"{where}: {module_name} has no {function} (received {spec.factory!r})")
    with fails_in_words(f"{where}: {spec.factory}", f" (arguments {spec.arguments!r})"):
        workload = factory(**spec.arguments)
    needed = ["model", "loss", "dataset" if spec.input == "real" else "batch"]
    with fails_in_words(f"{where}: what {spec.factory} returned"):
        missing = [name for name in needed if not callable(getattr(workload, name, None))]
    if missing:
        raise RequestError(
            f"{where}: an object with the methods {', '.join(needed)}; {', '.join(missing)} missing "
            f"(received a {type(workload).__name__} from {spec.factory})"
        )
    checked: Workload = workload
    return checked
