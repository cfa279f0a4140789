"""A sweep of collectives: which of them, over which messages, on how many devices, where."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from raybench.spec.base import (
    Ascending,
    Fraction,
    Listed,
    Model,
    NonNegativeInt,
    Seconds,
    Switch,
    timeout_is_longer,
)
from raybench.spec.study import ResourcesSpec

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
# Where workers stand on nodes; lists of ranks are a study's: they fit one world size only.
NodePlacement = Literal["pack", "spread"]

ELEMENT_BYTES = 4  # of float32, which messages are made of
DEFAULT_SIZES = tuple(2**10 * 4**power for power in range(10))  # 1 KiB to 256 MiB
Several = Annotated[int, Field(ge=2, strict=True)]  # one device has nobody to talk to
MessageBytes = Annotated[int, Field(ge=ELEMENT_BYTES, multiple_of=ELEMENT_BYTES, strict=True)]


def message_in_shares(message_bytes: int, world_size: int) -> int:
    """The largest message of at most so many bytes of which every rank has an equal share.

    Shares are whole float32, one at least. All collectives of a world size are measured at the same messages.
    """
    smallest = ELEMENT_BYTES * world_size
    return max(message_bytes // smallest, 1) * smallest


class SweepMeasureSpec(Model):
    """How long and how exactly the messages of one world size and placement are measured."""

    half_width: Fraction | None = Field(
        None, description="of each time's 95% interval, relative; unset: 0.05 on CPUs, 0.02 on GPUs"
    )
    max_seconds: Seconds = Field(
        60.0, description="rounds of one world size and placement end after this, in s"
    )
    timeout_seconds: Seconds = Field(600.0, description="the trial of each is ended after this, in s")
    min_rounds: Annotated[int, Field(ge=3, strict=True)] = Field(
        10, description="number of rounds after which the intervals are computed again"
    )

    _timeout = model_validator(mode="after")(timeout_is_longer)


class Sweep(Model):
    """What ``communication`` measures."""

    name: ClassVar[str] = "communication"  # what records and directories have for the name of a study
    # as of a study: how long it may take, not what is measured
    MAY_CHANGE_ON_RESUME: ClassVar[tuple[str, ...]] = ("measure.max_seconds", "measure.timeout_seconds")

    collectives: Listed[Collective] = Field(
        COLLECTIVES, min_length=1, description="as torch.distributed names them"
    )
    message_bytes: Annotated[Listed[MessageBytes], Ascending] = Field(
        DEFAULT_SIZES, min_length=1, description="sizes of the messages in bytes, as nccl-tests counts them"
    )
    world_sizes: Literal["all"] | Annotated[Listed[Several], Field(min_length=1), Ascending] = Field(
        "all", description='numbers of devices, from 2 on; "all": 2, 4, ... and every device'
    )
    placement: Listed[NodePlacement] = Field(
        ("pack",), min_length=1, description="pack fills nodes, spread takes one per node"
    )
    measure: SweepMeasureSpec = Field(SweepMeasureSpec(), description="how long and how exactly")
    loopback_nic: Switch = Field(
        False,
        description="whether GPUs of one node reach each other through its network adapters alone, as "
        "those of several nodes do",
    )
    resources: ResourcesSpec = Field(ResourcesSpec(), description="what each worker gets")
    seed: NonNegativeInt = Field(0, description="of the order of blocks")

    @property
    def least_workers(self) -> int:
        """The workers that it names: of its largest world size."""
        return 1 if self.world_sizes == "all" else max(self.world_sizes)
