"""What a trial leaves behind on one rank, however it ends."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

from raybench.records.messages import Outcome, RankFile
from raybench.worker.failures import AgreedFailure, RankFailure
from raybench.worker.trial import run_and_release


class _Loss:
    """With the activations behind it."""


class _Trial:
    """Fails as it is told, and keeps the error, as a model's own code may."""

    def __init__(self, *, fails: bool, agreed: bool, held: list[Any], kept: list[Exception], said: list[str]):
        self._fails, self._agreed, self._held, self._kept, self._said = fails, agreed, held, kept, said

    def run(self, on_progress: Any, held: ExitStack, files: list[RankFile]) -> Outcome:
        held.callback(self._release, files)
        if not self._fails:
            return Outcome("complete")
        try:
            self._step()
        except MemoryError as error:
            failure: Exception = error
        if self._agreed:
            try:
                raise AgreedFailure([RankFailure.of(failure, 1)]) from failure
            except AgreedFailure as agreed:
                failure = agreed
        self._kept.append(failure)
        raise failure

    def _step(self) -> None:
        loss = _Loss()
        self._held.append(weakref.ref(loss))
        raise MemoryError("planted")

    def _release(self, files: list[RankFile]) -> None:
        self._said.append("models gone")
        files.append(RankFile("trace", b""))


class _Device:
    def __init__(self, said: list[str], held: list[Any]) -> None:
        self._said, self._held = said, held

    def end_trial(self) -> None:
        self._said.append("trial ended")

    def release_memory(self) -> None:
        holds = any(reference() is not None for reference in self._held)
        self._said.append("memory returned but for the loss" if holds else "memory returned")


@pytest.mark.parametrize("agreed", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_failure_leaves_nothing_of_its_step_in_the_next_trials_way(fails: bool, agreed: bool) -> None:
    held, kept, said = list[Any](), list[Exception](), list[str]()
    team: Any = SimpleNamespace(leads=True, rank=0, ranks=(1,), use_once=lambda device: said.append("used"))
    device: Any = _Device(said, held)
    result = run_and_release(
        _Trial(fails=fails, agreed=agreed, held=held, kept=kept, said=said).run,
        team,
        device,
        lambda progress: None,
    )
    assert [each.name for each in result.files] == ["trace"]
    if fails:
        assert (result.state, result.reason) == ("oom", "rank 1: MemoryError: planted")
        assert result.broken is not agreed
        assert said == ["used", "models gone", "memory returned"]
    else:
        assert said == ["used", "models gone", "trial ended"]


def test_groups_that_cannot_be_used_for_want_of_memory_end_the_trial() -> None:
    def use_once(device: Any) -> None:
        raise RuntimeError("NCCL error\nCuda failure 2 'out of memory'")

    team: Any = SimpleNamespace(leads=True, rank=0, ranks=(4,), use_once=use_once)
    made: list[int] = []
    device: Any = _Device([], [])
    result = run_and_release(lambda *_: made.append(1), team, device, lambda progress: None)  # type: ignore[arg-type, func-returns-value, return-value]
    assert (result.state, result.broken, made) == ("oom", True, [])
    assert result.reason == "rank 4: RuntimeError: NCCL error: Cuda failure 2 'out of memory'"


def test_a_lost_context_ends_the_group_though_all_ranks_agree_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by an assertion on the device: what gives memory back then fails too, and hid what had happened."""

    def lost(*_: Any) -> NoReturn:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered", 710)

    def run(*_: Any) -> Outcome:
        # what is called next says it in its own words
        error = RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`")
        raise AgreedFailure([RankFailure.of(error, 1)])

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lost)
    team: Any = SimpleNamespace(leads=True, rank=0, ranks=(1,), use_once=lambda device: None)
    device: Any = SimpleNamespace(end_trial=lost, release_memory=lost)
    result = run_and_release(run, team, device, lambda progress: None)
    assert (result.state, result.broken) == ("crashed", True)
    assert result.reason is not None
    assert "CUBLAS_STATUS_EXECUTION_FAILED" in result.reason
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1, 16 * 2**30))
    assert not RankFailure.of(RuntimeError("shapes differ"), 1).ends_group
