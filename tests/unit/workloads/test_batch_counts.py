"""How many samples and tokens a batch has, whatever its shape, and what is refused."""

from __future__ import annotations

import math
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raybench.errors import InvalidBatchError
from raybench.workloads.batch_counts import correct_of, samples_of, tokens_of
from raybench.workloads.protocol import OfLoaders

Pair = namedtuple("Pair", "inputs labels")
PLAIN: Any = SimpleNamespace()


def tensors(*sizes: int) -> list[torch.Tensor]:
    return [torch.zeros(size, 4) for size in sizes]


@st.composite
def batches(draw: st.DrawFn, size: int) -> Any:
    """Of ``size`` samples, in any nesting of tuples, lists and dicts."""
    leaf = st.lists(st.integers(0, 3), max_size=2).map(lambda shape: torch.zeros(size, *shape))
    nested = st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3),
            st.lists(inner, min_size=1, max_size=3).map(tuple),
            st.dictionaries(st.sampled_from("abc"), inner, min_size=1),
            st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
        ),
        max_leaves=5,
    )
    return draw(nested)


@given(st.data(), st.integers(1, 40), st.integers(0, 40))
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_a_batch_of_as_many_as_were_asked_for_is_taken_and_any_other_refused(
    data: st.DataObject, asked: int, given_: int
) -> None:
    batch = data.draw(batches(given_))
    if given_ == asked:
        assert samples_of(PLAIN, batch, asked) == asked
    else:
        with pytest.raises(InvalidBatchError, match=f"{asked} samples, as asked for"):
            samples_of(PLAIN, batch, asked)


@pytest.mark.parametrize(
    "batch",
    [
        [torch.zeros(3, 8, 8) for _ in range(32)],  # images of their own sizes, one after the other
        (tuple(tensors(*range(32))), tuple({"boxes": each} for each in tensors(*range(32)))),
        (torch.zeros(32, 4), torch.tensor(0.5)),  # a number for the whole batch
        {"text": ["a"] * 32, "labels": torch.zeros(32)},
        np.zeros((32, 4)),
        {"inputs": torch.zeros(32, 0), "empty": [], "name": None},
    ],
)
def test_thirty_two_samples_as_libraries_put_them(batch: Any) -> None:
    assert samples_of(PLAIN, batch, 32) == 32


@pytest.mark.parametrize("size", [4, 8, 16])
def test_images_and_boxes_of_their_own_sizes_are_samples_at_any_batch(size: int) -> None:
    images = tuple(torch.zeros(3, 8 + each, 8) for each in range(size))
    boxes = tuple({"boxes": torch.zeros(each, 4)} for each in range(size))
    assert samples_of(PLAIN, (images, boxes), size) == size


@pytest.mark.parametrize("batch", [None, 3, "text", object(), {}, [], torch.tensor(32)])
def test_what_cannot_be_counted_needs_the_workloads_own_count(batch: Any) -> None:
    with pytest.raises(InvalidBatchError, match=r"a method samples\(batch\) of the workload says it"):
        samples_of(PLAIN, batch, 32)
    counts: Any = SimpleNamespace(samples=lambda batch: np.int64(32))
    assert samples_of(counts, batch, 32) == 32


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": torch.zeros(1, 300), "position_ids": torch.zeros(1, 300)},  # texts packed into one
        {"pixel_values": torch.zeros(700, 9), "labels": torch.zeros(2)},  # patches of two images
        SimpleNamespace(x=torch.zeros(50, 4), to=None),  # a batch of graphs
    ],
)
def test_a_collator_of_a_training_may_pack_the_samples_that_its_data_set_was_asked_for(batch: Any) -> None:
    adapted: Any = OfLoaders()
    assert samples_of(adapted, batch, 2) == 2


@pytest.mark.parametrize(
    ("told", "expected"),
    [(32, 32), (torch.tensor(7), 7), (64, 64), (31.0, 31)],
)
def test_samples_that_the_batch_holds(told: Any, expected: int) -> None:
    counts: Any = SimpleNamespace(samples=lambda batch: told)
    assert samples_of(counts, torch.zeros(64, 2), 32) == expected  # pairs of images: both may be samples


@pytest.mark.parametrize(
    "told", [0, -1, 65, 10**30, math.nan, math.inf, "32", None, True, 1.5, torch.ones(2)]
)
def test_samples_that_cannot_be(told: Any) -> None:
    counts: Any = SimpleNamespace(samples=lambda batch: told)
    with pytest.raises(InvalidBatchError, match=r"samples\(batch\): .*received"):
        samples_of(counts, torch.zeros(64, 2), 32)


@pytest.mark.parametrize("told", [0, -47_996, 129, math.nan, -math.inf, 10**400, "8", None])
def test_tokens_that_cannot_be(told: Any) -> None:
    counts: Any = SimpleNamespace(tokens=lambda batch: told)
    with pytest.raises(InvalidBatchError, match=r"tokens\(batch\): .*received"):
        tokens_of(counts, torch.zeros(64, 2), 32)
    means: Any = SimpleNamespace(tokens_per_sample=lambda: told if told != 129 else 1e9)
    with pytest.raises(InvalidBatchError, match=r"tokens_per_sample\(\): .*received"):
        tokens_of(means, torch.zeros(64, 2), 32)


def test_tokens_that_can_be() -> None:
    batch = torch.zeros(32, 4)
    assert tokens_of(SimpleNamespace(tokens=lambda _: torch.tensor(128)), batch, 32) == 128  # type: ignore[arg-type]
    # a batch of short texts has less than the mean
    assert tokens_of(SimpleNamespace(tokens_per_sample=lambda: 5.5), batch, 32) == 176  # type: ignore[arg-type]
    assert tokens_of(PLAIN, batch, 32) is None


@pytest.mark.parametrize("told", [None, "3", 0.5, math.nan, torch.tensor(0.5), torch.ones(2).long(), [3]])
def test_correct_predictions_are_one_whole_number(told: Any) -> None:
    with pytest.raises(InvalidBatchError, match=r"metric\(output, batch\)"):
        correct_of(told)


@pytest.mark.parametrize("told", [3, np.int32(3), torch.tensor(3), torch.tensor([3], dtype=torch.uint8)])
def test_a_whole_number_of_any_kind(told: Any) -> None:
    assert int(correct_of(told)) == 3
