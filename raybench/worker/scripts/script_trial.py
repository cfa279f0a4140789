"""A trial of a script on one rank: a process that runs it, and rounds of blocks of its steps.

As torchrun does, each rank starts the script in a process of its own, with torchrun's variables: it makes its
own process group, may leave as it likes, and takes nothing of the worker with it. The ranks agree in their
control group what comes next, and each sends it to its script, so that blocks end after the same step
everywhere.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import tempfile
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Any, cast

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from raybench.analysis.stats.stopping import LEAST_MEASURED, decide
from raybench.errors import InvalidTrialError, printable
from raybench.machine.child import Child
from raybench.machine.host import family_of, free_port, host_id
from raybench.records.messages import OnProgress, Outcome, Progress, RankFile
from raybench.records.requests import StepsRequest, Variant
from raybench.records.results import Beside, Block, PhaseBlock, Round, StepsResult
from raybench.spec.workloads import ScriptSpec
from raybench.worker.communicators import Team
from raybench.worker.devices.device import Device
from raybench.worker.failures import AgreedFailure, LateTrialError, RankFailure, is_echo
from raybench.worker.memory import all_known
from raybench.worker.scripts.stopwatch import (
    About,
    BlockDone,
    Ended,
    Launch,
    Order,
    ScriptVariant,
    run_script,
)
from raybench.worker.steps.meters import CoreMeter, OtherLoad
from raybench.worker.steps.rounds import LoopResult, discarded_steps, round_progress, timed_steps
from raybench.worker.strategies.ddp import SYNC_BUFFERS, bucket_arguments

POLL_S = 0.2
OTHERS_END_S = 5.0  # once one rank's script is over: the others notice, or are ended
LEAVES_S = 10.0  # when all steps are timed: what the script does at its end
DEADLINE_SHARE = 0.95  # of a trial's time-out: the rank outlives a script that hangs
ALIKE = 0.05  # relative, of the samples of a step and whole micro-batches
HINT = "; what it printed is in traces/"
EXITED = "the script exited with code "
STILL_SENDS = "the script's steps call as many collectives where its DDP keeps the gradients"
SENDS_NOW_AND_THEN = "some of the script's steps send nothing, as where ranks average weights now and then"
HAS_LONG_STEPS = "steps in which the script gathers something now and then last longer, as to evaluate"
SENDS_NOTHING = (
    "the steps call no collective, so each rank trains alone: the model is in no DistributedDataParallel (on "
    "CPUs Accelerate makes one of Accelerator(cpu=True) alone)"
)
SENDS_SELDOM = (
    "the script's DistributedDataParallel sends nothing in the first steps, as under no_sync or where ranks "
    "average their weights now and then: raybench compares steps that send"
)
# Of the worker group, or of Ray's: under torchrun a script does not find them.
OWN_FILES = "/proc/self/fd/"
NOT_TORCHRUN_S = ("ACCELERATE_TORCH_DEVICE", "NODE_RANK")
LONGEST_LOG = 64 * 2**10  # bytes of what each rank's script printed, the end of it
WARM_UP_STEPS = 5  # of a block
FEW_STEPS = 2  # whose collectives are compared: what is gathered now and then is not in both
USUAL = 0.6  # of the steps, which call as many collectives: the others gather something now and then
LITTLE = 0.03  # of a step: less than any part of it that a report names
STEADY, WARM_UP_SHARE = 0.1, 0.3  # relative, between two blocks; of the time for the rounds


class ScriptEndedError(InvalidTrialError):
    """The script is over, on its own, before its steps are measured."""


class _Process:
    """The script of one rank, running."""

    def __init__(self, launch: Launch, variables: dict[str, str], links: Sequence[Path]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="raybench-script-", ignore_cleanup_errors=True)
        working, self._log = Path(self._folder.name) / "files", Path(self._folder.name) / "log"
        working.mkdir()
        for path in links:
            (working / path.name).symlink_to(path)
        with self._log.open("wb") as log:
            self._child = Child(
                run_script,
                folder=self._folder.name,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=working,
                env=variables,
            )
        self.send = self._child.send
        self.send(launch)

    def poll(self) -> BlockDone | Ended | None:
        """What the script sends; None: nothing in this time."""
        try:
            return cast(BlockDone | Ended | None, self._child.receive(POLL_S))
        except EOFError:
            return Ended(exit_code=self._child.exit_code(LEAVES_S) or 0)

    def last_line(self) -> str:
        """That it printed, as the end of a sentence; empty where there is none."""
        self._child.exit_code(POLL_S)  # all of it is there then
        lines = [line.strip() for line in self._printed().decode(errors="replace").splitlines()]
        last = next((line for line in reversed(lines) if line), "")
        return f": {printable(last)}" if last else ""

    def _printed(self) -> bytes:
        with self._log.open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - LONGEST_LOG, 0))
            return log.read()

    def leave(self, seconds: float) -> None:
        """Every step is timed: it may do what it does at its end, for a while."""
        self.send(None)
        self._child.exit_code(seconds)

    def close(self) -> bytes:
        """End it and whatever it has started; returns the last that it printed."""
        self._child.close()
        printed = self._printed()
        self._folder.cleanup()
        return printed


class ScriptTrial:
    """Everything that one rank holds while it measures a script."""

    def __init__(self, request: StepsRequest, team: Team, device: Device) -> None:
        assert isinstance(request.config.workload, ScriptSpec)
        self._request, self._team, self._device = request, team, device
        self._script: ScriptSpec = request.config.workload
        self._random = random.Random(request.trial_id)  # the same order on every rank
        self._until = monotonic() + DEADLINE_SHARE * request.timeout_s
        self._num_steps = 0  # that are done
        # of the steps of the rounds: collectives on the rank that called most, and time in s on the slowest
        self._steps = defaultdict[Variant, list[tuple[int, float]]](list)
        self._steps_ahead = 0  # for which loaders read batches while the script waits for its next block
        self._missing: dict[Variant | Beside, str] = {}

    def run(self, on_progress: OnProgress, held: ExitStack, files: list[RankFile]) -> Outcome:
        """The measurement, the same on every rank but for what only the leader can know.

        ``held`` ends the script when it is closed; what that printed is then in ``files``.
        """
        on_progress(Progress("set up"))
        began, self._load = perf_counter(), OtherLoad(self._team)
        self._over = f"script-{self._team.from_leader(str(uuid.uuid4()))}"  # key in the store: one is over
        links = list(map(Path, self._script.links))
        self._process = _Process(self._launch(), self._variables(), links)
        name = f"rank-{self._team.ranks[self._team.rank]}.log"
        held.callback(lambda: files.append(RankFile(name, self._process.close())))
        reports = self._reports()
        if reports is None:
            raise InvalidTrialError(
                "the script made no step of a torch.optim optimizer: processes that it starts are not timed, "
                f"and one that goes on from a checkpoint may have found that of an earlier trial{HINT}"
            )
        about = [report.about for report in reports]
        self._check(about)
        set_up = perf_counter()
        on_progress(Progress("warm up"))
        variants, step_s = self._warm_up(about)
        warmed_up = perf_counter()
        rounds = self._measure(variants, step_s, on_progress)
        if self._has_long_steps():
            self._missing["local"] = HAS_LONG_STEPS
            rounds.drop("local")
        about = [report.about for report in rounds.last]
        samples, full = self._samples(about)
        if not self._team.leads:
            return Outcome("complete")
        result = StepsResult(
            **self._of_ranks(about, samples, full),
            rounds=tuple(rounds.rounds),
            stopped_by=rounds.stopped_by,
            setup_s=set_up - began,
            warmup_s=warmed_up - set_up,
            measure_s=perf_counter() - warmed_up,
            phases=tuple(rounds.phases),
            local_collectives=self._usual_collectives(),
            missing=self._missing,
        )
        return Outcome("complete", result=result, step_times=tuple(rounds.step_times))

    def _check(self, about: Sequence[About]) -> None:
        """Raises ``InvalidTrialError`` where the script trains otherwise than this trial says."""
        kind = self._device.kind
        if any(each.on_gpu != (kind == "cuda") for each in about):
            has, other = ("put nothing", "cpu") if kind == "cuda" else ("put something", "cuda")
            raise InvalidTrialError(
                f"the script has {has} on a GPU by its first step, and this study is of {kind}: "
                f"--device {other} measures it"
            )
        if any((each.world_size or 1) != self._team.size for each in about):
            raise InvalidTrialError(
                f"the script has made no process group of {self._team.size} ranks, so each trains alone: it "
                "takes torch.distributed.init_process_group, as under torchrun"
            )
        unreached = {*(self._script.ddp_knobs or ())} - {*self._script.placeholders}
        if self._team.size > 1 and unreached and not all(each.has_ddp for each in about):
            raise InvalidTrialError(
                f"knobs.{min(unreached)}: the script makes no DistributedDataParallel, which would take it"
            )

    # --- the process

    def _launch(self) -> Launch:
        script, setting = self._script, self._request.config.setting
        several = self._team.size > 1
        given: dict[str, Any] = {name: getattr(setting, name) for name in script.ddp_knobs or () if several}
        compression = given.pop("gradient_compression", "none")
        if "bucket_cap_mb" in given:
            given |= bucket_arguments(given["bucket_cap_mb"])
        if "broadcast_buffers" in given:  # by its newer name; the script may have it by the older one
            given |= {"broadcast_buffers": None, SYNC_BUFFERS: given["broadcast_buffers"]}
        return Launch(
            rank=self._team.ranks[self._team.rank],
            script=script.script,
            is_module=script.is_module,
            arguments=tuple(script.words(self._request.config.script_values())),
            ddp_arguments=given,
            compression=compression,
        )

    def _variables(self) -> dict[str, str]:
        """torchrun's, for the ranks of this trial alone, each with the devices of its host's."""
        team, cuda = self._team, self._device.kind == "cuda"
        place: tuple[str, str | None] = host_id(), _gpu(self._device.torch_device.index) if cuda else None
        hosts = team.gather(place)
        here = [rank for rank, (host, _) in enumerate(hosts) if host == place[0]]
        names = list(dict.fromkeys(host for host, _ in hosts))
        address, port = team.from_leader(_meeting_point())
        own: dict[str, Any] = {
            "RANK": team.rank,
            "ROLE_RANK": team.rank,
            "WORLD_SIZE": team.size,
            "ROLE_WORLD_SIZE": team.size,
            "ROLE_NAME": "default",
            "LOCAL_RANK": here.index(team.rank),
            "LOCAL_WORLD_SIZE": len(here),
            "GROUP_RANK": names.index(place[0]),
            "GROUP_WORLD_SIZE": len(names),
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": self._over,
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
            "PYTHONUNBUFFERED": 1,  # what it has printed is there, however it ends
        }
        if cuda:
            own["CUDA_VISIBLE_DEVICES"] = ",".join(str(hosts[rank][1]) for rank in here)
        if self._request.config.setting.num_threads:
            own["OMP_NUM_THREADS"] = self._request.config.setting.num_threads
        left: tuple[str, ...] = NOT_TORCHRUN_S
        if os.environ.get("NCCL_DEBUG_FILE", "").startswith(OWN_FILES):  # raybench's own log of this process
            left = (*left, "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
        kept = {name: value for name, value in os.environ.items() if name not in left}
        return {"WANDB_MODE": "offline"} | kept | {name: str(value) for name, value in own.items()}

    # --- what all ranks say

    def _block(self, order: Order) -> list[BlockDone]:
        """A block of steps on every rank; raises ``ScriptEndedError`` where the script is over before."""
        self._process.send(order)
        reports, num_steps = self._reports(), self._num_steps + order.discarded + order.timed
        if reports is None:
            raise ScriptEndedError(
                f"the script ended within {num_steps} optimizer steps, too few to measure: raise its "
                "epochs or max_steps (raybench stops it early)"
            )
        self._num_steps = num_steps
        return reports

    def _reports(self) -> list[BlockDone] | None:
        """What every rank's script sends next; None where it is over on one, without a failure.

        Raises ``AgreedFailure`` for one that failed, ``LateTrialError`` where one sends nothing.
        """
        answers = self._team.gather(self._answer())
        late = [rank for rank, each in zip(self._team.ranks, answers, strict=True) if each is None]
        if late:
            # where all are, one may wait for another
            which = f"rank {late[0]}: " if len(late) < len(answers) else ""
            steps = f"after {self._num_steps} steps" if self._num_steps else "without a step"
            seconds = DEADLINE_SHARE * self._request.timeout_s
            raise LateTrialError(
                f"{which}the script hangs, or is slow: {seconds:.0f} s are over {steps} of a torch.optim "
                f"optimizer (measure.timeout_seconds){HINT}"
            )
        ended = [each for each in answers if isinstance(each, Ended)]
        failures = [each.failure for each in ended if each.failure is not None]
        if failures:
            # an echo, or an exit code without an exception, may only follow from another rank's
            failures.sort(key=lambda each: (is_echo(each.text), each.text.startswith(EXITED)))
            raise AgreedFailure(failures)
        return None if ended else answers

    def _answer(self) -> BlockDone | Ended | None:
        """What this rank's script sends next; None where a trial may not take so long.

        It is not waited for when one on another rank is over.
        """
        until, store = self._until, dist.distributed_c10d._get_default_store()
        while (answer := self._process.poll()) is None:
            if until == self._until and store.check([self._over]):
                until = min(until, monotonic() + OTHERS_END_S)
            if monotonic() >= until:
                return None if until == self._until else Ended()
        if isinstance(answer, Ended):
            store.set(self._over, "")
            if answer.exit_code and answer.failure is None:
                text = f"{EXITED}{answer.exit_code}{self._process.last_line()}{HINT}"
                return Ended(RankFailure(self._team.ranks[self._team.rank], text, False, False))
        return answer

    def _samples(self, about: Sequence[About]) -> tuple[float, int]:
        """Of all ranks in the mean step and in a full one: as typed, as counted, or as asked for."""
        config, script, size = self._request.config, self._script, self._team.size
        if script.samples_per_step is not None:
            return float(script.samples_per_step * size), script.samples_per_step * size
        counted, batch = [each.samples_per_step for each in about], config.batch_size
        is_asked = "batch_size" in script.placeholders
        if not any(counted):  # one rank may read for all
            if "global_batch_size" in script.placeholders:
                return float(config.global_batch_size), config.global_batch_size
            if is_asked:  # with as many micro-batches as there are backward passes
                in_all = batch * sum(each.passes for each in about)
                return float(in_all), in_all
            raise InvalidTrialError(
                "samples of a step: neither torch's DataLoaders nor {batch_size} in --args tell them; "
                "--samples-per-step does, for one device"
            )
        full = sum(each.full_step for each in about)
        of_one = full / size
        if is_asked and abs(of_one / (max(1, round(of_one / batch)) * batch) - 1) >= ALIKE:
            raise InvalidTrialError(
                f"samples of a step: torch's DataLoaders gave {of_one:,g} for each device, which is not a "
                f"multiple of {{batch_size}} in --args, {batch:,}: a script that divides its batch among the "
                "devices takes {global_batch_size}, and --samples-per-step N counts those of one device"
            )
        return sum(counted), full

    # --- rounds

    def _warm_up(self, about: Sequence[About]) -> tuple[list[ScriptVariant], float]:
        """What is measured, and the step time of the first of it, in s, once that is steady."""
        if self._team.size == 1:
            return ["plain"], self._until_steady("plain")
        step_s = self._until_steady("ddp")
        self._missing["concurrent"] = "a script has no step without its wrapper"
        unswitched = next(filter(None, (each.unswitched for each in about)), None)
        if unswitched is not None:
            self._missing["local"] = unswitched
            return ["ddp"], step_s
        ddp, local = (_most_collectives(self._block(Order(each, 1, FEW_STEPS))) for each in ("ddp", "local"))
        if local.min() >= ddp.min():
            self._missing["local"] = STILL_SENDS if ddp.min() else SENDS_NOW_AND_THEN
            return ["ddp"], step_s
        return ["ddp", "local"], step_s

    def _until_steady(self, variant: ScriptVariant) -> float:
        """Blocks until the step time is steady; returns it, in s, of the slowest rank."""
        measure, before, began = self._request.measure, 0.0, monotonic()
        steps = WARM_UP_STEPS if measure.warmup_steps is None else max(measure.warmup_steps, 1)
        while True:
            reports = self._block(Order(variant, 0, steps))
            if self._team.size > 1 and not _most_collectives(reports).any():
                has_ddp = any(report.about.has_ddp for report in reports)
                raise InvalidTrialError(SENDS_SELDOM if has_ddp else SENDS_NOTHING)
            self._samples([report.about for report in reports])
            now, spent_s = self._team.from_leader(
                (max(median(each.times) for each in reports), monotonic() - began)
            )
            self._steps_ahead = max(report.steps_ahead for report in reports)
            is_steady = before > 0 and abs(now / before - 1) <= STEADY
            if measure.warmup_steps is not None or is_steady or spent_s > WARM_UP_SHARE * measure.max_seconds:
                return float(now)
            before = now

    def _measure(self, variants: Sequence[ScriptVariant], step_s: float, on_progress: OnProgress) -> _Rounds:
        """Rounds until the interval is narrow enough, the time is spent or the script is over."""
        measure, load, cores = self._request.measure, self._load, CoreMeter(has_children=True)
        rounds, began = _Rounds(), perf_counter()
        while True:
            at_s = perf_counter() - began
            cores.start()
            done = dict[Variant, Sequence[BlockDone]]()
            for variant in self._random.sample(variants, len(variants)):
                try:
                    reports = self._block(self._order(variant, step_s, len(variants)))
                except (LateTrialError, ScriptEndedError):
                    if len(rounds.rounds) < LEAST_MEASURED:
                        raise
                    rounds.stopped_by = "ended"
                    return rounds
                done[variant] = self._kept(variant, reports)
                self._steps_ahead = max(self._steps_ahead, *(report.steps_ahead for report in reports))
            if not all(len(reports[0].times) for reports in done.values()):
                continue
            other_cores = load.of_round(self._team.gather(cores.used()))
            blocks = rounds.blocks_of(self._team.ranks, done)
            rounds.rounds.append(Round(blocks=blocks, at_s=at_s, other_cores=other_cores))
            decision = self._team.from_leader(
                decide(rounds.rounds, measure, self._device.kind, perf_counter() - began)
            )
            on_progress(round_progress(len(rounds.rounds), decision.half_width))
            if decision.stop:
                rounds.stopped_by = decision.stop
                self._process.leave(min(LEAVES_S, self._until - monotonic()))
                return rounds

    def _order(self, variant: ScriptVariant, step_s: float, num_variants: int) -> Order:
        steps = timed_steps(step_s, step_s, self._request.measure, num_variants, self._device.block_seconds)
        return Order(variant, max(discarded_steps(step_s), self._steps_ahead), steps)

    def _kept(self, variant: Variant, reports: Sequence[BlockDone]) -> Sequence[BlockDone]:
        """The block; of ``local`` without steps in which the script gathers what it does not in most.

        Ranks wait there for what they were apart by in all steps before. In the real step nothing is left
        out: one device may do the same, as an evaluation, and gather nothing.
        """
        called = _most_collectives(reports)
        slowest_s = np.max([report.times for report in reports], axis=0)
        self._steps[variant] += zip(called.tolist(), slowest_s.tolist(), strict=True)
        if variant != "local":
            return reports
        usual = called <= self._usual_collectives()
        return [_of_steps(each, usual) for each in reports]

    def _usual_collectives(self, variant: Variant = "local") -> int:
        """Of a step: as many as most call; where no number is that of most, at most. 0 without steps."""
        every = Counter(called for called, _ in self._steps[variant]) or Counter([0])
        ((usual, times),) = every.most_common(1)
        return usual if times >= USUAL * every.total() else max(every)

    def _has_long_steps(self) -> bool:
        """Whether what is left out of ``local`` lasts, so that without it the rest is no base of ``ddp``."""
        called, times = np.array(self._steps["ddp"] or [(0, 0.0)]).T
        long = called > self._usual_collectives("ddp")
        most = max((called for called, _ in self._steps["local"]), default=0)
        if most <= self._usual_collectives() or not long.any():
            return False
        usual_s = np.median(times[~long])
        return bool(np.mean(long) * (np.median(times[long]) - usual_s) > LITTLE * usual_s)

    def _of_ranks(self, about: Sequence[About], samples: float, full: int) -> dict[str, Any]:
        """Fields that the ranks know together, and those of the model and DDP."""
        accumulation, first = self._request.config.setting.gradient_accumulation, about[0]
        firsts = {each.first_samples for each in about}
        return {
            "batch_size": max(1, round(full / self._team.size / accumulation)),
            "global_batch_size": max(1, full),
            "samples_per_step": samples,
            "epoch_samples": first.epoch_samples,
            "same_samples": None not in firsts and len(firsts) == 1 < self._team.size,
            "num_parameters": first.num_parameters or None,
            "gradient_bytes": first.gradient_bytes,
            "bucket_bytes": first.bucket_bytes,
            "overridden": dict(first.overridden),
            "hosts": self._load.hosts,
            "host_cores": self._load.host_cores,
            "peak_memory_bytes": all_known([each.torch_bytes for each in about]),
            "device_memory_bytes": all_known([each.device_bytes for each in about]),
        }


@dataclass
class _Rounds(LoopResult):
    """What the rounds brought, on every rank."""

    phases: list[PhaseBlock] = field(default_factory=list)
    last: Sequence[BlockDone] = ()

    def drop(self, variant: Variant) -> None:
        """Leave it out of every round."""

        def others(found: Iterable[Any]) -> list[Any]:
            return [each for each in found if each.variant != variant]

        self.rounds = [one.model_copy(update={"blocks": tuple(others(one.blocks))}) for one in self.rounds]
        self.step_times, self.phases = others(self.step_times), others(self.phases)

    def blocks_of(
        self, ranks: tuple[int, ...], done: Mapping[Variant, Sequence[BlockDone]]
    ) -> tuple[Block, ...]:
        """Those of a round: of each variant a block on every rank, in their order."""
        blocks = list[Block]()
        for variant, reports in done.items():
            times = np.stack([report.times for report in reports])
            blocks.append(self.add_block(variant, ranks, times))
            entered = dict.fromkeys(phase for report in reports for phase in report.phases)
            seconds = {
                phase: float(np.mean([report.phases.get(phase, 0.0 * report.times) for report in reports]))
                for phase in entered
            }
            self.phases.append(PhaseBlock(variant=variant, seconds=seconds, num_steps=times.shape[1]))
            self.last = reports
        return tuple(blocks)


def _most_collectives(reports: Sequence[BlockDone]) -> NDArray[np.int64]:
    """Of each timed step of a block, on the rank that called most."""
    return np.asarray(np.max([report.collectives for report in reports], axis=0), dtype=np.int64)


def _of_steps(block: BlockDone, which: NDArray[np.bool_]) -> BlockDone:
    phases = {phase: seconds[which] for phase, seconds in block.phases.items()}
    return replace(block, times=block.times[which], phases=phases, collectives=block.collectives[which])


def _meeting_point() -> tuple[str, int]:
    """This host's address, as the other workers of the group reach it, and a port that is free."""
    known = os.environ.get("MASTER_ADDR", "127.0.0.1")
    with socket.socket(family_of(known), socket.SOCK_DGRAM) as asking:
        asking.connect((known, 1))  # nothing is sent: it tells by which address that one is reached
        address = asking.getsockname()[0]
    return address, free_port(address)


def _gpu(index: int) -> str:
    """As CUDA_VISIBLE_DEVICES names the GPU that this process calls ``index``."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[index] if visible else str(index)
