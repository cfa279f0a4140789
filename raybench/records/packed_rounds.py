"""Rounds of many trials in memory: kept as a few bytes, made again for whoever reads them.

A round that is read is an object with blocks, 20 times as large as its numbers: of 100,000 trials that is
several GiB, of which a report needs one trial's at a time; and a study would grow by half a MiB with each of
its trials.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from raybench.records.measurements import Block, Round
from raybench.records.record import TrialRecord
from raybench.records.requests import Variant

Model = TypeVar("Model", bound=BaseModel)

_SET = object.__setattr__
_BLOCK, _ROUND = (tuple(model.model_fields) for model in (Block, Round))
_BLOCK_SET, _ROUND_SET = set(_BLOCK), set(_ROUND)
PlainBlock = tuple[Variant, tuple[int, ...], tuple[float, ...], float, int]
PlainRound = tuple[
    tuple[PlainBlock, ...], float, tuple[float | None, ...], tuple[float | None, ...], tuple[bool | None, ...]
]


class PackedRounds(Sequence[Round]):
    """The rounds of one trial, equal to the tuple that they were packed from."""

    __slots__ = ("_number", "_packed")
    _open: tuple[PackedRounds, tuple[Round, ...]] | None = (
        None  # who was read last: most are read several times
    )

    def __init__(self, rounds: Sequence[Round]) -> None:
        plain = plain_rounds(rounds)
        self._number, self._packed = len(plain), marshal.dumps(plain)

    def plain(self) -> tuple[PlainRound, ...]:
        """The values alone, without their models."""
        found: tuple[PlainRound, ...] = marshal.loads(self._packed)
        return found

    def _rounds(self) -> tuple[Round, ...]:
        if PackedRounds._open is None or PackedRounds._open[0] is not self:
            rounds = tuple(
                _made(
                    Round,
                    _ROUND,
                    _ROUND_SET,
                    (tuple(_made(Block, _BLOCK, _BLOCK_SET, b) for b in blocks), *rest),
                )
                for blocks, *rest in self.plain()
            )
            PackedRounds._open = (self, rounds)
        return PackedRounds._open[1]

    @overload
    def __getitem__(self, place: int) -> Round: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Round]: ...
    def __getitem__(self, place: int | slice) -> Round | Sequence[Round]:
        return self._rounds()[place]

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Round]:
        return iter(self._rounds())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedRounds | tuple) and self._rounds() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._packed)


def plain_rounds(rounds: Sequence[Round]) -> tuple[PlainRound, ...]:
    """The values of rounds, in the order of the models' fields: made of them, or as they were packed."""
    if isinstance(rounds, PackedRounds):
        return rounds.plain()
    return tuple(
        (tuple(tuple(vars(block).values()) for block in each.blocks), *tuple(vars(each).values())[1:])
        for each in rounds
    )


def _made(model: type[Model], names: tuple[str, ...], given: set[str], values: Sequence[Any]) -> Model:
    """A model of values that were checked before they were packed."""
    made = model.__new__(model)
    _SET(made, "__dict__", dict(zip(names, values, strict=True)))
    _SET(made, "__pydantic_fields_set__", given)
    _SET(made, "__pydantic_extra__", None)
    _SET(made, "__pydantic_private__", None)
    return made


class Packer:
    """Makes records small that were read and checked: their rounds are packed, what many share is shared."""

    def __init__(self) -> None:
        self._shared: dict[tuple[type, str], object] = {}
        self._given: dict[frozenset[str], set[str]] = {}

    def pack(self, record: TrialRecord) -> TrialRecord:
        """The same record."""
        request, result = record.request, record.result
        self._share(request, "variants", "measure")
        self._share(request.config, "workload", "optimizer", "environment")
        self._share(record, "hostnames", "device_name", "started_at", "study")
        if record.steps is not None:
            vars(record.steps)["rounds"] = PackedRounds(record.steps.rounds)
        for model in (record, request, request.config, getattr(request.config, "setting", None), result):
            if model is not None:
                given = model.__pydantic_fields_set__
                shared = self._given.setdefault(frozenset(given), given)
                object.__setattr__(model, "__pydantic_fields_set__", shared)
        return record

    def _share(self, model: BaseModel, *names: str) -> None:
        """One object for all that are equal to the last one seen."""
        values = vars(model)
        for name in names:
            if name in values:
                last = self._shared.get((type(model), name))
                if last is not None and last == values[name]:
                    values[name] = last
                else:
                    self._shared[type(model), name] = values[name]
