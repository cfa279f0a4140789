"""Which data sets real input may have."""

from typing import Any

import pytest
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from raybench.spec.workloads import FactorySpec
from raybench.workloads import build, check
from raybench.workloads.protocol import dataset_of
from tests.unit.workloads.refusals import refusal


class Streamed(IterableDataset[int]):
    def __iter__(self):
        return iter(range(100))

    def __len__(self) -> int:
        return 100


class Unsized(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


class WithDataset:
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return model(batch.float()[:, None]).mean()

    def dataset(self, split: str) -> Any:
        return self._dataset


def streamed() -> WithDataset:
    return WithDataset(Streamed())


def unsized() -> WithDataset:
    return WithDataset(Unsized())


def listed() -> WithDataset:
    return WithDataset([1.0, 2.0])


@pytest.mark.parametrize(("factory", "kind"), [("streamed", "Streamed"), ("unsized", "Unsized")])
def test_a_data_set_without_numbers_or_length_is_refused(factory: str, kind: str) -> None:
    spec = FactorySpec(factory=f"{__name__}:{factory}", input="real")
    assert refusal(lambda: check(spec, None)) == (
        'workload: dataset("train") is a map-style data set, with __len__ and __getitem__ '
        f"(received a {kind})"
    )


def test_a_list_of_samples_is_one() -> None:
    spec = FactorySpec(factory=f"{__name__}:listed", input="real")
    check(spec, None)
    assert list(dataset_of(build(spec, None), "train")) == [1.0, 2.0]
