"""One trial, asked and answered: a line of ``trials.jsonl``.

Records hold raw measurements only; every statistic is computed on reading, by ``raybench.analysis``.

History of the schema, newest first. Its version is MAJOR.MINOR: a raybench reads its own major version, of
the minor ones its own and all older; before it versions were whole numbers, none of which was released. A new
knob is no new version: who lacks it refuses a line that has it, by its name.

3.2. Of results of steps `warmup_steps` and `loss`, and of those of a sweep `stopped_by` and `measure_s`, are
   read over.
3.1. Of a training's results `reference_batch` and `global_batch_size`, which its request has, and `compared`
   are read over.
3.0. No knob at its default is part of a trial's id.
2.2. `suggestion`, a number, is read over.
2.1. Results of steps have `update_s` and `fused_update_s`.
2.0. A sweep's trial is a world size and placement, with no parts. Of a training every epoch is evaluated, its
   rate is as set or linear after a warm-up, and no gradient noise is measured. Results of steps name no other
   programs, and a crash has one `frame`; those of probes, trainings and sweeps have no times of set-up. A
   study has no `search.half_width`, `scaling.target_world_size`, `cost.price_per_node_hour`, `cost.runs`,
   `measure.memory_snapshot`, `image_folder` or files by name.
1.2. Results of steps have `collective_bytes`, `pass_collectives`, `host_waits` and `numa_nodes`, blocks
   `clock_mhz` and rounds `temperature_c`; `ddp_logger`, `first_batch_s`, `peak_learning_rate`, `restarts` and
   `profile`, and of a sweep `busy_cores`, `host_busy`, `hosts` and `host_cores`, are read over.
1.1. Results of steps have `quota_used_up`, `nccl_networks` and `pcie_links`; settings `batched_grad_copy`,
   `skip_all_reduce_unused_params` and `optimizer_kernels`; `bucket_cap_mb` may be several sizes, as "1/5/25".
1.0. The anchor is the study's default, measured in the rounds of every trial at the target world size; a
   request of steps has ``visit``, part of the id from 1 on.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from raybench.errors import StoreError
from raybench.records.base import Duration, Frozen, Whole, Workers, first_fault
from raybench.records.requests import Configuration, StudyRequest, TrialRequest
from raybench.records.results import CollectivesResult, ProbeResult, StepsResult, TrainingResult
from raybench.spec.user_input import received

SCHEMA_VERSION = "3.2"

#: complete: it has a result; no other state has numbers
#: oom: out of memory, on a device or on the host
#: timeout: it took longer than it may
#: crashed: an exception, a worker that died, or variables of `[environment]` with which no worker group
#:   starts, as one with others does
#: invalid: it cannot be had as requested, or what was measured means nothing (a loss that is not finite)
State = Literal["complete", "oom", "timeout", "crashed", "invalid"]
TrialResult = Annotated[
    StepsResult | ProbeResult | TrainingResult | CollectivesResult, Field(discriminator="kind")
]


def is_readable(version: Any) -> bool:
    """Whether this raybench reads the schema of ``version``: of its major version, and no newer."""
    major, minor = SCHEMA_VERSION.split(".")
    found = re.fullmatch(r"(\d+)\.(\d+)", version) if isinstance(version, str) else None
    return found is not None and found[1] == major and int(found[2]) <= int(minor)


def _readable(version: str) -> str:
    if not is_readable(version):
        raise ValueError("another version")
    return version


class TrialRecord(Frozen):
    """One line of ``trials.jsonl``."""

    #: version of this format, MAJOR.MINOR: read where the major one is the reader's, the minor one no newer
    schema_version: Annotated[str, AfterValidator(_readable)] = SCHEMA_VERSION
    #: name of the study; `communication` of a sweep
    study: str
    #: twelve hexadecimal digits: a hash of the question, `kind` and `role` included; left out are knobs at
    #: their defaults, how long it may take, how often, and what is kept with the numbers (a model, a profile)
    trial_id: str
    #: what was requested
    request: TrialRequest
    #: how it ended
    state: State
    #: why it is not complete; null where it is
    reason: str | None = None
    #: ranks of the worker group that took part, ascending
    ranks: tuple[Whole, ...] = ()
    #: number of nodes of these ranks
    nodes: Workers | None = None
    #: host of each of `ranks`
    hostnames: tuple[str, ...] = ()
    #: name of the device
    device_name: str | None = None
    #: which worker group of the study, counted from 1, those of resumed sessions too
    group: Whole = 0
    #: ISO 8601, UTC
    started_at: str
    #: time that the trial took altogether, in s
    wall_time_s: Duration
    #: of a crash: the innermost line of the user's own code, as `model.py:31, in loss: ...`, or of all code
    frame: str = ""
    #: what was measured, of the request's kind; null where the trial is not complete
    result: TrialResult | None = None

    @property
    def study_request(self) -> StudyRequest:
        """What a study asked; a sweep's requests are no study's."""
        assert self.request.kind != "collectives"
        return self.request

    @property
    def config(self) -> Configuration:
        """What was trained, and where; a record of a sweep has no more than a place."""
        request = self.request  # asked very often: no property more on the way
        assert request.kind != "collectives"
        return request.config

    @property
    def steps(self) -> StepsResult | None:
        """The result of a complete trial of steps; None for every other record."""
        return self.result if isinstance(self.result, StepsResult) else None

    @property
    def probe(self) -> ProbeResult | None:
        """The result of a complete probe; None for every other record."""
        return self.result if isinstance(self.result, ProbeResult) else None

    @property
    def collectives(self) -> CollectivesResult | None:
        """The result of a complete trial of a sweep; None for every other record."""
        return self.result if isinstance(self.result, CollectivesResult) else None

    @property
    def training(self) -> TrainingResult | None:
        """The result of a complete training; None for every other record."""
        return self.result if isinstance(self.result, TrainingResult) else None

    @model_validator(mode="after")
    def _only_complete_has_numbers(self) -> Self:
        if (self.state == "complete") != (self.result is not None):
            raise ValueError("a trial has a result exactly when it is complete")
        if self.result is not None and self.result.kind != self.request.kind:
            raise ValueError(f"a {self.request.kind} request has no {self.result.kind} result")
        if self.state != "complete" and not self.reason:
            raise ValueError("a trial that is not complete has a reason")
        return self


class DamagedLineError(StoreError):
    """A line that is no record; whoever only reads can do without it."""


def record_of_line(path: Path, number: int, line: bytes) -> TrialRecord:
    """The record of line ``number``, from 1 on.

    Raises:
        DamagedLineError: it is no record.
        StoreError: it is of another version.
    """
    try:
        record = TrialRecord.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["loc"] == ("schema_version",):
            refuse_other_version(path, first["input"])
        raise DamagedLineError(f"{path}: line {number} is damaged: {first_fault(error)}") from None
    if "schema_version" not in record.model_fields_set:
        raise DamagedLineError(f"{path}: line {number} is damaged: schema_version: Field required")
    return record


def refuse_other_version(path: Path, version: Any) -> None:
    """Raise ``StoreError`` where this raybench does not read the schema of ``version``."""
    if not is_readable(version):
        raise StoreError(
            f"{path}: schema_version {received(version)}, this raybench reads {SCHEMA_VERSION}: "
            "measure again, or use the raybench that wrote it"
        )
