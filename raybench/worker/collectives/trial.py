"""A part of a sweep on one rank: buffers, warm-up with a check of every result, rounds."""

from __future__ import annotations

from time import perf_counter

import torch.distributed as dist

from raybench.errors import InvalidTrialError
from raybench.machine.host import allowed_cores, host_id, numbered
from raybench.records.collectives import CollectivesResult
from raybench.records.messages import Progress
from raybench.records.requests import CollectivesRequest
from raybench.worker.collectives.cases import Cases, Preparation
from raybench.worker.collectives.rounds import MessageRounds
from raybench.worker.communicators import Team
from raybench.worker.devices.base import Device
from raybench.worker.outcome import OnProgress, RankResult


class CollectivesTrial:
    """Everything that one rank holds while it measures messages."""

    def __init__(self, request: CollectivesRequest, team: Team, device: Device) -> None:
        self._request, self._team, self._device = request, team, device
        self._cases = Cases()

    def run(self, on_progress: OnProgress) -> RankResult:
        """The times of all messages, on the leader."""
        began, request = perf_counter(), self._request
        on_progress(Progress("set up"))
        preparation = Preparation(
            request, self._team, self._device, lambda words: on_progress(Progress("warm up", words))
        )
        set_up = perf_counter()
        self._cases = preparation.prepare()
        if not self._cases.ready:
            raise InvalidTrialError(f"no message can be measured: {self._cases.missing[0].reason}")
        warmed_up, num_rounds = perf_counter(), request.measure.min_rounds
        measured = MessageRounds(
            self._cases.ready,
            self._team,
            self._device,
            order=f"{request.config.seed} {request.part}",
            on_round=lambda number: on_progress(Progress("measure", f"round {number} of {num_rounds}")),
        ).run(num_rounds, request.left_s)
        hosts = self._team.gather_on_leader((host_id(), len(allowed_cores())))
        if hosts is None:
            return RankResult("complete")
        on_cores = self._device.kind == "cpu"  # which carry the messages themselves
        result = CollectivesResult(
            backend=str(dist.get_backend(self._team.data)),
            rounds=measured.rounds,
            stopped_by=measured.stopped_by,
            missing=tuple(self._cases.missing),
            hosts=numbered([host for host, _ in hosts]),
            host_cores=tuple(cores for _, cores in hosts) if on_cores else None,
            setup_s=set_up - began,
            warmup_s=warmed_up - set_up,
            measure_s=measured.seconds,
        )
        return RankResult("complete", result=result)

    def release(self) -> None:
        """Drop the buffers."""
        self._cases = Cases()
