"""One trial on one rank: set up, warm up, measure, collect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import torch
from torch.nn.parallel import DistributedDataParallel

from raybench.errors import InvalidTrialError
from raybench.launch.runner import Progress, Samples
from raybench.record import Measurement, PhaseBlock, TrainingResult, TrialRequest, Variant
from raybench.worker import probe as probing
from raybench.worker.batches import make_batches
from raybench.worker.communication import (
    AgreedFailure,
    Communicators,
    Replay,
    Team,
    describe,
    is_out_of_memory,
)
from raybench.worker.kept import Kept
from raybench.worker.loop import Loop, LoopResult, VariantRun
from raybench.worker.phases import phase_blocks
from raybench.worker.strategies import Bench, Lane
from raybench.worker.warmup import warm_up
from raybench.workloads import Workload, build
from raybench.workloads.protocol import samples_of, tokens_of

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class RankResult:
    """How the trial ended on one rank; only the team's leader brings the numbers."""

    state: str
    reason: str | None = None
    measurement: Measurement | None = None
    training: TrainingResult | None = None
    samples: tuple[Samples, ...] = ()
    broken: bool = False  # failed where others may still wait: the team's groups are dead


@dataclass(frozen=True)
class RankFacts:
    """What each rank knows of itself when the rounds are done."""

    peak_memory_bytes: int | None
    device_memory_bytes: int | None
    utilization: float | None
    energy_joules: float | None  # over all timed steps of synced
    samples: int  # of a micro-batch
    tokens: int | None


class Trial:
    """Everything that one rank holds while it measures one trial."""

    def __init__(self, request: TrialRequest, team: Team, device: torch.device, kept: Kept) -> None:
        self._request, self._team, self._device = request, team, device
        self._kept, self._probe = kept, probing.DeviceProbe(device)
        self._missing: dict[Variant, str] = {}
        self._workload: Workload = build(request.workload, request.data)
        self._bench: Bench | None = None
        self._versus: Bench | None = None

    def run(self, on_progress: OnProgress) -> tuple[Measurement, tuple[Samples, ...]]:
        """The measurement, the same on every rank but for what only the leader can know."""
        began = perf_counter()
        on_progress(Progress("set up"))
        bench, stepped = self._set_up()
        runs = self._runs(bench)
        set_up = perf_counter()
        on_progress(Progress("warm up"))
        self._probe.reset_peak()
        steps, seconds = warm_up(self._team, runs, self._request.measure, self._device)
        peak, device_peak = self._probe.peak_memory_bytes(), self._probe.device_memory_bytes()
        runs = self._add_twin(bench, runs, seconds)
        runs = self._add_replay(bench, runs, seconds)
        warm = perf_counter()
        loop = Loop(
            self._team,
            runs,
            self._request.measure,
            self._device,
            self._probe,
            seed=self._request.seed,
            step_seconds=seconds,
            on_round=lambda number, half_width: on_progress(_round_progress(number, half_width)),
        )
        result = loop.run()
        on_progress(Progress("collect"))
        facts = self._team.gather(
            RankFacts(peak, device_peak, self._probe.utilization(), result.energy_joules, *self._counts())
        )
        measurement = Measurement(
            rounds=tuple(result.rounds),
            stopped_by=result.stopped_by,
            batch_size=self._request.batch_size,
            global_batch_size=self._request.global_batch_size,
            warmup_steps=steps,
            setup_s=set_up - began - stepped,
            warmup_s=warm - set_up + stepped,
            measure_s=result.seconds,
            missing=self._missing,
            phases=self._phases(bench, max(seconds.values())),
            loss=result.loss,
            matrix_peak_flops_per_s=self._matrix_peak(),
            flops_per_step=self._kept.flops.get(self._flops_key()),
            peak_memory_bytes=_all_known([rank.peak_memory_bytes for rank in facts]),
            device_memory_bytes=_all_known([rank.device_memory_bytes for rank in facts]),
            device_utilization=tuple(rank.utilization for rank in facts)
            if self._device.type == "cuda"
            else None,
            energy_joules=_energy_per_step([rank.energy_joules for rank in facts], result),
            **self._per_step(facts),
            **self._ddp_facts(bench),
        )
        return measurement, tuple(result.samples)

    def release(self) -> None:
        """Drop the models before their process group goes."""
        for bench in (self._bench, self._versus):
            if bench is not None:
                bench.release()
        self._bench = self._versus = None

    def _set_up(self) -> tuple[Bench, float]:
        """The models, and the seconds of a step of the bare one alone.

        What fails here, on whichever rank, is agreed on before the first collective.
        """
        failure: Exception | None = None
        stepped = 0.0
        try:
            self._make_benches()
            began = perf_counter()
            self._step_alone()
            stepped = perf_counter() - began
        except Exception as error:
            failure = error
        self._team.agree(failure)
        assert self._bench is not None
        return self._bench, stepped

    def _make_benches(self) -> None:
        request = self._request
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
        batches = make_batches(self._workload, request, request.batch_size, self._team.rank, self._device)
        model = self._kept.model(self._workload, request.workload.model_dump_json(), request.seed)
        return Bench(
            self._workload,
            model,
            request.optimizer,
            request.setting,
            batches,
            self._device,
            threads=request.cpus_per_worker,
        )

    def _count_or_step(self, bench: Bench) -> None:
        """Counts the operations once for each batch; one count serves every later trial of the group."""
        key = self._flops_key()
        if key in self._kept.flops:
            bench.bare.step()
        else:
            self._kept.flops[key] = probing.count_flops(bench.bare)

    def _flops_key(self) -> str:
        request = self._request
        micro, accumulation = request.batch_size, request.setting.gradient_accumulation
        return f"{request.workload.model_dump_json()} {micro} {accumulation}"

    def _runs(self, bench: Bench) -> list[VariantRun]:
        """What the request asks for, but for the twin and the replay, which come after the warm-up."""
        asked, team, runs = self._request.variants, self._team, list[VariantRun]()
        bare = bench.bare
        shared = {"activate": bench.activate, "warm": bare.batches.warm}
        if team.size == 1:
            return [VariantRun("plain", bare.step, loss=lambda: bare.loss, alone=True, **shared)]  # type: ignore[arg-type]
        if "plain" in asked:
            runs.append(VariantRun("plain", bare.step, loss=lambda: bare.loss, alone=True, **shared))  # type: ignore[arg-type]
        if "base" in asked:
            base = self._base(bench)
            if base is not None:
                runs.append(base)
        if "crowd" in asked:
            runs.append(VariantRun("crowd", bare.step, loss=lambda: bare.loss, free=True, **shared))  # type: ignore[arg-type]
        real = bench.wrap(team)
        runs.append(
            VariantRun("synced", real.step, loss=lambda: real.loss, drifting=real.tensors, **shared)  # type: ignore[arg-type]
        )
        if self._versus is not None:
            other = self._versus.wrap(team)
            runs.append(
                VariantRun(
                    "versus",
                    other.step,
                    self._versus.activate,
                    lambda: other.loss,
                    warm=other.batches.warm,
                    drifting=other.tensors,
                )
            )
        return runs

    def _base(self, bench: Bench) -> VariantRun | None:
        """Strong scaling: the bare model at the global batch. Where it does not fit, the record says so."""
        request, failure = self._request, None
        size = request.setting.batch_size // request.setting.gradient_accumulation
        try:
            one = request.model_copy(update={"world_size": 1})
            lane = bench.with_batches(make_batches(self._workload, one, size, 0, self._device))
            lane.step()
            probing.synchronize(self._device)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            failure = describe(error)
        failures = [found for found in self._team.gather(failure) if found]
        if failures:
            self._missing["base"] = f"batch {size} does not fit on one device: {failures[0]}"
            return None
        return VariantRun(
            "base", lane.step, bench.activate, lambda: lane.loss, alone=True, warm=lane.batches.warm
        )

    def _add_twin(
        self, bench: Bench, runs: list[VariantRun], seconds: dict[Variant, float]
    ) -> list[VariantRun]:
        if "local" not in self._request.variants or self._team.size == 1:
            return runs
        if self._request.setting.find_unused_parameters:
            # every backward pass then ends in an all-reduce of its own, which no hook can leave out
            self._missing["local"] = "find_unused_parameters sends even where gradients stay"
            return runs
        failure = None
        try:
            lane = bench.twin(self._team)
            local = VariantRun(
                "local", lane.step, bench.activate, lambda: lane.loss, free=True, warm=lane.batches.warm
            )
            _, found = warm_up(self._team, [local], self._request.measure, self._device)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            failure = describe(error)
        if any(self._team.gather(failure)):
            bench.local = None
            self._missing["local"] = "no memory for a second set of buckets"
            return runs
        seconds.update(found)
        return [*runs, local]

    def _add_replay(
        self, bench: Bench, runs: list[VariantRun], seconds: dict[Variant, float]
    ) -> list[VariantRun]:
        if "replay" not in self._request.variants or bench.real is None:
            return runs
        assert isinstance(bench.real.module, DistributedDataParallel)
        sizes = probing.bucket_bytes(probing.logging_data(bench.real.module))
        replay = Replay(sizes, self._team, self._device, bench.hook, bench.hook_state)
        run = VariantRun("replay", replay.step)
        _, found = warm_up(self._team, [run], self._request.measure, self._device)
        seconds.update(found)
        return [*runs, run]

    def _phases(self, bench: Bench, step_s: float) -> tuple[PhaseBlock, ...]:
        if self._request.role != "scaling":
            return ()
        lanes: dict[Literal["plain", "local", "synced"], Lane] = {"plain": bench.bare}
        if bench.local is not None:
            lanes["local"] = bench.local
        elif bench.real is not None:
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
        key, peaks = f"{self._request.setting.precision} {torch.get_num_threads()}", self._kept.matrix_peaks
        if key not in peaks and self._team.leads:
            peaks[key] = probing.matrix_peak_flops_per_s(self._device, self._request.setting.precision)
        self._team.barrier()
        return peaks.get(key)

    def _counts(self) -> tuple[int, int | None]:
        """Samples and tokens of a micro-batch of this rank."""
        assert self._bench is not None
        batch = self._bench.bare.batches.next()
        samples = samples_of(self._workload, batch)
        size = self._request.batch_size
        return size if samples is None else samples, tokens_of(self._workload, batch)

    def _per_step(self, facts: list[RankFacts]) -> dict[str, float | None]:
        """Samples and tokens of one step of all ranks, and samples with the other setting."""
        request, accumulation = self._request, self._request.setting.gradient_accumulation
        samples = sum(rank.samples for rank in facts)
        tokens = [rank.tokens for rank in facts if rank.tokens is not None]
        counts: dict[str, float | None] = {"samples_per_step": float(samples * accumulation)}
        if len(tokens) == len(facts):
            counts["tokens_per_step"] = float(sum(tokens) * accumulation)
        if request.versus is not None:
            larger = request.micro_batch(request.versus) / request.batch_size
            counts["versus_samples_per_step"] = samples * larger * request.versus.gradient_accumulation
        return counts

    def _ddp_facts(self, bench: Bench) -> dict[str, object]:
        if bench.real is None:
            return {}
        assert isinstance(bench.real.module, DistributedDataParallel)
        data = probing.logging_data(bench.real.module)
        sizes = probing.bucket_bytes(data)
        halved = 2 if self._request.setting.gradient_compression != "none" else 1
        return {
            "bucket_bytes": sizes,
            "gradient_bytes": sum(sizes) // halved,
            "ddp_logger": probing.logger_times(data),
        }


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
    trial: Trial | None = None
    try:
        trial = _begin(request, team, device, kept)
        measurement, samples = trial.run(on_progress if team.leads else lambda _: None)
        if not team.leads:
            return RankResult("complete")
        return RankResult("complete", measurement=measurement, samples=samples)
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
    state = "oom" if is_out_of_memory(error) else "crashed"
    return RankResult(state, f"rank {team.ranks[team.rank]}: {describe(error)}", broken=True)


def _begin(request: TrialRequest, team: Team, device: torch.device, kept: Kept) -> Trial:
    """The trial's parts; a failure to make them is agreed on, as no rank waits in a collective yet."""
    failure: Exception | None = None
    trial: Trial | None = None
    try:
        trial = Trial(request, team, device, kept)
    except Exception as error:
        failure = error
    team.agree(failure)
    assert trial is not None
    return trial


def _round_progress(number: int, half_width: float | None) -> Progress:
    width = "" if half_width is None else f"±{100 * half_width:.1f}%"
    return Progress("measure", f"round {number} {width}".strip())


def _all_known(values: list[int | None]) -> tuple[int, ...] | None:
    known = [value for value in values if value is not None]
    return tuple(known) if len(known) == len(values) else None


def _energy_per_step(joules: list[float | None], result: LoopResult) -> float | None:
    if not result.synced_steps or any(value is None for value in joules):
        return None
    return sum(value for value in joules if value is not None) / result.synced_steps
