"""One trial on one rank: set up, warm up, measure, collect."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, Protocol, TypeVar

import torch

from raybench.errors import InvalidTrialError
from raybench.records.measurements import PhaseBlock, StepsResult
from raybench.records.messages import Progress, Samples
from raybench.records.requests import TrialRequest, Variant
from raybench.records.trainings import TrainingResult
from raybench.worker.batches import make_batches
from raybench.worker.cache import Kept
from raybench.worker.communicators import (
    AgreedFailure,
    Communicators,
    Team,
    describe,
    is_out_of_memory,
)
from raybench.worker.devices import probe as probing
from raybench.worker.model_memory import limits_of_ranks, refuse_without_room
from raybench.worker.steps.parity import compression_error, loss_parity
from raybench.worker.steps.phases import phase_blocks
from raybench.worker.steps.rank_report import (
    RankFacts,
    all_known,
    count,
    ddp_facts,
    device_facts,
    memory_of_ranks,
    per_step,
)
from raybench.worker.steps.rounds import Loop
from raybench.worker.steps.variants import Variants
from raybench.worker.steps.warmup import warm_up
from raybench.worker.strategies import compiling
from raybench.worker.strategies.models import Bench, Lane
from raybench.workloads import Workload, build

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class RankResult:
    """How the trial ended on one rank; only the team's leader brings the numbers."""

    state: str
    reason: str | None = None
    measurement: StepsResult | None = None
    training: TrainingResult | None = None
    samples: tuple[Samples, ...] = ()
    broken: bool = False  # failed where others may still wait: the team's groups are dead


class Trial:
    """Everything that one rank holds while it measures one trial."""

    def __init__(self, request: TrialRequest, team: Team, device: torch.device, kept: Kept) -> None:
        self._request, self._team, self._device = request, team, device
        self._kept, self._probe = kept, probing.DeviceProbe(device)
        self._missing: dict[Variant, str] = {}
        self._workload: Workload  # made with the models, where a failure is agreed on
        self._bench: Bench | None = None
        self._versus: Bench | None = None
        self._memory_limits: tuple[int, ...] | None = None  # of each rank
        self._compiled_before = 0  # graphs of earlier trials

    def run(self, on_progress: OnProgress) -> tuple[StepsResult, tuple[Samples, ...]]:
        """The measurement, the same on every rank but for what only the leader can know.

        The peak of memory is read when only what is measured has warmed up: of torch's allocator, without
        what the other variants use (under FSDP without a plain copy; under DDP with the plain variant's
        optimizer state, which is the same). On CPUs the process counts, whatever it holds.
        """
        began = perf_counter()
        on_progress(Progress("set up"))
        if self._request.fit:
            if not self._kept.has_model:  # DDP forms cycles, which may hold the last trial's large model
                gc.collect()
            probing.give_back_memory(self._device)
            self._team.barrier()  # before anyone looks at what is left
        fit = self._request.fit  # a probe of the largest batch: what is left just now
        self._memory_limits = limits_of_ranks(self._team, self._kept, self._probe, anew=fit)
        bench, stepped = self._set_up()
        fixed = self._fixed_memory(bench) if self._request.fit else None
        variants = Variants(
            self._request, self._workload, self._team, self._device, bench, self._versus, self._missing
        )
        first = variants.first()
        set_up = perf_counter()
        on_progress(Progress("warm up"))
        self._probe.reset_peak(bench.devices)
        steps, seconds = warm_up(self._team, [first], self._request.measure, self._device)
        peak, device_peak = self._probe.peak_memory_bytes(), self._probe.device_memory_bytes()
        if self._request.fit:
            took_s = (set_up - began, perf_counter() - set_up)
            return self._fitted(steps, (peak, device_peak, fixed), *took_s), ()
        led = self._team.gather([torch.cuda.max_memory_allocated(each) for each in bench.devices])[0]
        others = variants.others()
        seconds |= warm_up(self._team, others, self._request.measure, self._device)[1]
        runs = variants.with_replay(variants.with_twin([*others, first], seconds), seconds)
        warm, compiled = perf_counter(), self._num_compiled()
        if self._compiles and compiled == self._compiled_before:  # alike on all ranks: they run one program
            raise InvalidTrialError(
                "compile: torch compiled nothing of this model (2.11 leaves a bare nn.Sequential as it is)"
            )
        loop = Loop(
            self._team,
            runs,
            self._request.measure,
            self._device,
            self._probe,
            seed=self._request.config.seed,
            step_seconds=seconds,
            on_round=lambda number, half_width: on_progress(_round_progress(number, half_width)),
        )
        result = loop.run()
        on_progress(Progress("collect"))
        facts = self._team.gather(
            RankFacts(
                peak,
                device_peak,
                self._probe.utilization(),
                result.energy_joules,
                self._num_compiled() - compiled,
                *count(self._request, self._workload, bench),
            )
        )
        if any(rank.recompiled for rank in facts):
            raise InvalidTrialError(
                "compile: torch compiled again within the rounds: shapes of batches or the graph change"
            )
        measurement = StepsResult(
            rounds=tuple(result.rounds),
            stopped_by=result.stopped_by,
            batch_size=self._request.config.batch_size,
            global_batch_size=self._request.config.global_batch_size,
            warmup_steps=steps,
            setup_s=set_up - began - stepped,
            warmup_s=warm - set_up + stepped,
            measure_s=result.seconds,
            missing=self._missing,
            phases=self._phases(bench, max(seconds.values())),
            loss=result.loss,
            matrix_peak_flops_per_s=self._matrix_peak(),
            flops_per_step=self._kept.flops.get(self._flops_key()),
            **memory_of_ranks(facts, led),
            memory_limit_bytes=self._memory_limits,
            **device_facts(facts, result, self._device),
            **per_step(self._request, facts),
            **ddp_facts(self._request.config.setting.gradient_compression, bench),
            **self._correctness(bench, seconds.get("plain")),
        )
        return measurement, tuple(result.samples)

    def _fixed_memory(self, bench: Bench) -> int | None:
        """What a step takes on a CPU whatever its batch: what the first one left, gradients and buckets."""
        room = self._probe.memory_room() if self._device.type == "cpu" else None
        trained = (tensor for tensor in bench.bare.module.parameters() if tensor.requires_grad)
        gradients = sum(tensor.nbytes for tensor in trained)
        has_buckets = self._team.size > 1 and not self._request.config.setting.gradient_as_bucket_view
        return None if room is None else room.taken_bytes + gradients * (2 if has_buckets else 1)

    def _fitted(
        self, steps: int, memory: tuple[int | None, ...], setup_s: float, warmup_s: float
    ) -> StepsResult:
        """What a probe of the largest batch brings: memory, and no rounds."""
        facts = self._team.gather(memory)
        return StepsResult(
            rounds=(),
            stopped_by="steps",
            batch_size=self._request.config.batch_size,
            global_batch_size=self._request.config.global_batch_size,
            samples_per_step=float(self._request.config.global_batch_size),
            warmup_steps=steps,
            setup_s=setup_s,
            warmup_s=warmup_s,
            measure_s=0.0,
            peak_memory_bytes=all_known([rank[0] for rank in facts]),
            device_memory_bytes=all_known([rank[1] for rank in facts]),
            fixed_memory_bytes=all_known([rank[2] for rank in facts]),
            memory_limit_bytes=self._memory_limits,
        )

    def release(self) -> None:
        """Drop the models before their process group goes."""
        for bench in (self._bench, self._versus):
            if bench is not None:
                bench.release()
        self._bench = self._versus = None

    def _set_up(self) -> tuple[Bench, float]:
        """The models, and the seconds of a step of the bare one alone.

        What fails here, on whichever rank, is agreed on before the first collective. FSDP trains what one
        device has no memory for: then the bare model is missing, and the trial goes on.
        """
        failure, too_large, stepped = None, None, 0.0
        sharded = self._request.config.setting.strategy == "fsdp"
        try:
            self._make_benches()
            began = perf_counter()
            self._step_alone()
            stepped = perf_counter() - began
        except Exception as error:
            if sharded and self._bench is not None and is_out_of_memory(error):
                too_large = describe(error)
            else:
                failure = error
        self._team.agree(failure)
        reasons = [reason for reason in self._team.gather(too_large) if reason] if sharded else []
        if reasons:
            self._missing["plain"] = f"the model does not fit on one device: {reasons[0]}"
        assert self._bench is not None
        return self._bench, stepped

    def _make_benches(self) -> None:
        request = self._request
        self._workload = build(request.config.workload, request.config.data)
        if self._compiles:
            compiling.forget()
            self._compiled_before = self._num_compiled()
        self._bench = self._make_bench(request)
        if request.versus is not None:
            other = request.model_copy(update={"setting": request.versus, "versus": None})
            self._versus = self._make_bench(other)

    def _step_alone(self) -> None:
        assert self._bench is not None
        if self._versus is not None:
            self._versus.activate()
            self._versus.bare.step()
        self._bench.activate()
        self._count_or_step(self._bench)
        probing.synchronize(self._device)

    def _make_bench(self, request: TrialRequest) -> Bench:
        refuse_without_room(request, self._workload, self._team, self._kept)
        batches = make_batches(
            self._workload, request, request.config.batch_size, self._team.rank, self._device
        )
        together = None
        if request.config.setting.strategy == "dp" and self._team.leads:
            of_all = request.config.batch_size * request.config.world_size
            one = request.model_copy(update={"world_size": 1})
            together = make_batches(self._workload, one, of_all, 0, self._device)
        model = self._kept.model(
            self._workload, request.config.workload.model_dump_json(), request.config.seed
        )
        return Bench(
            self._workload,
            model,
            request.config.optimizer,
            request.config.setting,
            batches,
            self._device,
            threads=request.config.cpus_per_worker,
            together=together,
        )

    def _count_or_step(self, bench: Bench) -> None:
        """Counts the operations once for each batch; one count serves every later trial of the group."""
        key, compiled = self._flops_key(), bench.setting.compile
        known = key in self._kept.flops or self._request.fit
        if not known:
            with compiling.eager(compiled):
                self._kept.flops[key] = probing.count_flops(bench.bare)
        if known or compiled:
            bench.bare.step()

    def _flops_key(self) -> str:
        request = self._request
        micro, setting = request.config.batch_size, request.config.setting
        twice = setting.activation_checkpointing  # what is computed again is counted again
        return f"{request.config.workload.model_dump_json()} {micro} {setting.gradient_accumulation} {twice}"

    def _phases(self, bench: Bench, step_s: float) -> tuple[PhaseBlock, ...]:
        if self._request.role != "scaling":
            return ()
        lanes: dict[Literal["plain", "local", "synced"], Lane] = {}
        if "plain" not in self._missing:
            lanes["plain"] = bench.bare
        if bench.local is not None:
            lanes["local"] = bench.local
        elif bench.real is not None and bench.setting.strategy != "dp":
            if bench.setting.strategy == "ddp":
                self._team.same_weights(bench.real.tensors())
            lanes["synced"] = bench.real
        return phase_blocks(
            self._team,
            lanes,
            bench.activate,
            self._device,
            step_s=step_s,
            max_seconds=self._request.measure.max_seconds,
        )

    def _matrix_peak(self) -> float | None:
        """Measured once for each precision of a group, on the leader while the others wait."""
        if self._request.role != "scaling":
            return None
        key, peaks = (
            f"{self._request.config.setting.precision} {torch.get_num_threads()}",
            self._kept.matrix_peaks,
        )
        if key not in peaks and self._team.leads:
            peaks[key] = probing.matrix_peak_flops_per_s(self._device, self._request.config.setting.precision)
        self._team.barrier()
        return peaks.get(key)

    def _correctness(self, bench: Bench, step_s: float | None) -> dict[str, Any]:
        """Loss parity, and compression's error: does the strategy train what one device trains?"""
        request = self._request
        if request.role != "scaling" or bench.real is None or self._team.size == 1:
            return {}
        found: dict[str, Any] = {}
        bench.activate()
        if request.config.setting.gradient_compression != "none":
            found["compression_error"] = compression_error(bench, self._team)
        found["parity"], found["parity_missing"] = loss_parity(
            request, self._workload, bench, self._team, self._kept, step_s
        )
        return found

    @property
    def _compiles(self) -> bool:
        versus = self._request.versus
        return self._request.config.setting.compile or (versus is not None and versus.compile)

    def _num_compiled(self) -> int:
        return compiling.num_compiled() if self._compiles else 0


def measure_trial(
    request: TrialRequest,
    ranks: tuple[int, ...],
    communicators: Communicators,
    device: torch.device,
    kept: Kept,
    on_progress: OnProgress,
) -> RankResult | None:
    """Called on every rank of the group; None on ranks that do not take part.

    ``kept`` is the caller's, from one trial of the group to the next.
    """
    team = communicators.team(ranks, request.measure.timeout_seconds)
    if team is None:
        return None

    def measured(trial: Trial) -> RankResult:
        measurement, samples = trial.run(on_progress if team.leads else lambda _: None)
        if not team.leads:
            return RankResult("complete")
        return RankResult("complete", measurement=measurement, samples=samples)

    return carried_through(lambda: Trial(request, team, device, kept), measured, team, device)


class Releasable(Protocol):
    """A trial of any kind on one rank."""

    def release(self) -> None:
        """Drop the models before their process group goes."""
        ...


AnyTrial = TypeVar("AnyTrial", bound=Releasable)


def carried_through(
    make: Callable[[], AnyTrial], run: Callable[[AnyTrial], RankResult], team: Team, device: torch.device
) -> RankResult:
    """Make a trial, run it, and let go of what it held, however it ends."""
    trial: AnyTrial | None = None
    try:
        trial = make()
        return run(trial)
    except Exception as error:
        return failed(error, team)
    finally:
        if trial is not None:
            trial.release()
        del trial
        if device.type == "cuda":
            torch.cuda.empty_cache()


def failed(error: Exception, team: Team) -> RankResult:
    """How a trial ended that raised ``error`` on this rank."""
    if isinstance(error, AgreedFailure):
        state = "oom" if error.out_of_memory else "invalid" if error.invalid else "crashed"
        return RankResult(state, str(error))
    if isinstance(error, InvalidTrialError):
        return RankResult("invalid", str(error))  # every rank found it at once: nobody waits
    if type(error).__name__ == "FailOnRecompileLimitHit":
        return RankResult("invalid", "compile: torch gave up, as shapes or graph keep changing", broken=True)
    state = "oom" if is_out_of_memory(error) else "crashed"
    return RankResult(state, f"rank {team.ranks[team.rank]}: {describe(error)}", broken=True)


def _round_progress(number: int, half_width: float | None) -> Progress:
    width = "" if half_width is None else f"±{100 * half_width:.1f}%"
    return Progress("measure", f"round {number} {width}".strip())
