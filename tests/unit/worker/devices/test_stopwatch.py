"""Laps are the times between marks, whatever the clock."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from raybench.worker.devices.cuda import CUDADevice, CUDAStopwatch
from raybench.worker.devices.device import Device, Stopwatch


def test_laps_are_the_times_between_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = iter([5.0, 5.25, 6.0])
    monkeypatch.setattr("raybench.worker.devices.device.perf_counter", lambda: next(marks))
    watch = Stopwatch()
    watch.start()
    watch.lap()
    watch.lap()
    laps = watch.read()
    assert laps.dtype == np.float64
    assert laps.tolist() == [0.25, 0.75]


def test_a_start_forgets_the_laps_before() -> None:
    watch = Stopwatch()
    watch.start()
    watch.lap()
    watch.lap()
    watch.start()
    watch.lap()
    assert watch.read().shape == (1,)
    assert watch.read().shape == (1,)  # reading changes nothing


def test_without_a_lap_there_is_no_time() -> None:
    watch = Stopwatch()
    watch.start()
    assert watch.read().shape == (0,)


def test_each_device_has_its_stopwatch() -> None:
    assert isinstance(Device().stopwatch(), Stopwatch)
    watch = CUDADevice(torch.device("cuda")).stopwatch()  # makes no event before its start
    assert isinstance(watch, CUDAStopwatch)


def test_marks_are_on_the_stream_of_the_ranks_gpu_whatever_was_made_current(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Code written for one GPU may choose another: its marks took microseconds."""
    recorded = list[str]()

    def stream(device: object) -> SimpleNamespace:
        return SimpleNamespace(record_event=lambda: recorded.append(f"stream of {device}"))

    monkeypatch.setattr(
        torch.cuda, "Event", lambda **options: SimpleNamespace(record=lambda stream: stream.record_event())
    )
    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    device = CUDADevice(torch.device("cuda", 3))
    device.stopwatch().start()
    device.moment()
    assert recorded == ["stream of cuda:3"] * 2
