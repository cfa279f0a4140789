"""A sweep as it is written down: its defaults, its file, what is refused."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from pydantic import ValidationError

from raybench.spec.sweep import Sweep, message_in_shares
from raybench.spec.user_input import to_toml


def test_a_sweep_comes_back_from_its_file() -> None:
    sweep = Sweep.model_validate(
        {
            "collectives": ("broadcast", "all_reduce"),
            "message_bytes": (1 << 20, 1024),
            "world_sizes": (4, 2),
            "placement": ("spread", "pack"),
            "measure": {"max_seconds": 5.0, "half_width": 0.1},
        }
    )
    assert sweep.message_bytes == (1024, 1 << 20)
    assert sweep.world_sizes == (2, 4)
    assert Sweep.model_validate(tomllib.loads(to_toml(sweep))) == sweep


def test_the_default_sizes_are_from_1_kib_to_256_mib() -> None:
    sizes = Sweep().message_bytes
    assert (sizes[0], sizes[-1], len(sizes)) == (1024, 256 << 20, 10)


@pytest.mark.parametrize(
    "wrong",
    [
        {"collectives": ()},
        {"collectives": ("reduce",)},
        {"message_bytes": (0,)},
        {"message_bytes": (1022,)},
        {"message_bytes": (1024, 1024)},
        {"world_sizes": (1, 2)},
        {"world_sizes": (2, 2)},
        {"placement": ("near",)},
        {"measure": {"max_seconds": 700.0}},
        {"message_bytes": ("1024", 8)},
        {"nothing": 1},
    ],
)
def test_what_cannot_be_swept_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Sweep.model_validate(wrong)


@pytest.mark.parametrize(
    ("message_bytes", "world_size", "shared"), [(1024, 2, 1024), (1024, 3, 1020), (8, 2, 8), (4, 2, 8)]
)
def test_a_message_has_an_equal_share_for_every_rank(
    message_bytes: int, world_size: int, shared: int
) -> None:
    assert message_in_shares(message_bytes, world_size) == shared
