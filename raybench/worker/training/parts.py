"""Epochs of a data set over ranks: every sample once, the uneven last step split as evenly as can be.

The samples of an optimizer step depend on the seed, the epoch and the global batch only, never on the number
of ranks; and what is random in a sample (its augmentation) on its place in the epoch, never on the process
that reads it. So one device and several train on the same steps, and a resumed trial on the same samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

MOST_SEEDS = 2**63  # that torch's generators take
PRIME = 1_000_003  # keeps the seeds of two epochs, and of two parts, apart


@dataclass(frozen=True)
class Part:
    """One micro-batch of one rank."""

    indices: tuple[int, ...]  # of the data set
    num_samples: int  # that count: 0 where the indices only stand in, for a rank that must take part
    step_samples: int  # of all ranks in this optimizer step
    seed: int  # of what is random in the samples


def even_sizes(total: int, parts: int) -> list[int]:
    """``parts`` whole numbers that add up to ``total`` and differ by 1 at most, the larger first."""
    base, more = divmod(total, parts)
    return [base + (place < more) for place in range(parts)]


def split(
    order: Sequence[int], *, step_size: int, ranks: int, rank: int, micro_batches: int, seed: int
) -> list[list[Part]]:
    """The optimizer steps of an epoch, each with the micro-batches of ``rank``.

    A step's samples are split over the ranks, then over each rank's micro-batches; only the last step may
    be short. A part without samples holds two of the step's, to be weighted with 0: its rank must take part
    in the collectives.
    """
    steps = []
    for number, begin in enumerate(range(0, len(order), step_size)):
        step = order[begin : begin + step_size]
        shares = even_sizes(len(step), ranks)
        at = sum(shares[:rank])
        parts = []
        for micro_batch, size in enumerate(even_sizes(shares[rank], micro_batches)):
            place = (number * ranks + rank) * micro_batches + micro_batch
            indices = tuple(step[at : at + size]) or tuple(step[:2])
            parts.append(Part(indices, size, len(step), (seed * PRIME + place) % MOST_SEEDS))
            at += size
        steps.append(parts)
    return steps


def shuffled(length: int, seed: int, epoch: int) -> list[int]:
    """The order of an epoch, the same on every rank."""
    generator = torch.Generator().manual_seed((seed * PRIME + epoch) % MOST_SEEDS)
    order: list[int] = torch.randperm(length, generator=generator).tolist()
    return order
