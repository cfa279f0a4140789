"""Laps are the times between marks, whatever the clock."""

from __future__ import annotations

import time

import numpy as np
import torch

from raybench.worker.devices.cpu import CPUDevice, CPUStopwatch
from raybench.worker.devices.cuda import CUDADevice, CUDAStopwatch


def test_laps_are_the_times_between_marks() -> None:
    watch = CPUStopwatch()
    began = time.perf_counter()
    watch.start()
    for seconds in (0.01, 0.03):
        time.sleep(seconds)
        watch.lap()
    total = time.perf_counter() - began
    laps = watch.read()
    assert laps.shape == (2,)
    assert laps.dtype == np.float64
    # a sleep is never shorter than asked; how much longer is the machine's affair
    assert laps[0] >= 0.01
    assert laps[1] >= 0.03
    assert laps.sum() <= total


def test_a_start_forgets_the_laps_before() -> None:
    watch = CPUStopwatch()
    watch.start()
    watch.lap()
    watch.lap()
    watch.start()
    watch.lap()
    assert watch.read().shape == (1,)
    assert watch.read().shape == (1,)  # reading changes nothing


def test_without_a_lap_there_is_no_time() -> None:
    watch = CPUStopwatch()
    watch.start()
    assert watch.read().shape == (0,)


def test_each_device_has_its_stopwatch() -> None:
    assert isinstance(CPUDevice().stopwatch(), CPUStopwatch)
    watch = CUDADevice(torch.device("cuda")).stopwatch()  # makes no event before its start
    assert isinstance(watch, CUDAStopwatch)
