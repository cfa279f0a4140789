"""What is sent through Ray, when, and what happens where it cannot be."""

from __future__ import annotations

import logging
import re
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from raybench.launch import metrics
from raybench.launch.metrics import LEFT, METRICS, TRIALS, Metric, RayMetrics

UNITS = ("_seconds", "_ratio", "_bytes_per_second", "_samples_per_second")
COUNTS = ("trials", "trials_done", "trials_planned")


class Ray:
    """Stands for Ray: keeps what it is sent while it is connected."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connected = True
        self.made: list[str] = []
        self.sent: list[tuple[str, float, dict[str, str]]] = []
        self.error: Exception | None = None
        monkeypatch.setattr(metrics, "_gauge_maker", lambda: self.make if self.connected else None)

    def make(self, metric: Metric) -> Any:
        self.made.append(metric.name)
        return SimpleNamespace(set=lambda value, tags: self.take(metric.name, value, tags))

    def take(self, name: str, value: float, tags: dict[str, str]) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((name, value, tags))


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    return Ray(monkeypatch)


def test_names_have_a_prefix_and_their_unit_as_prometheus_asks() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"raybench_[a-z_]+", metric.name)
        assert metric.name.endswith((*UNITS, *COUNTS)), metric.name
        assert metric.tags[0] == "study"
        assert metric.description
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    every = {value for value in vars(metrics).values() if isinstance(value, Metric)}
    assert set(METRICS) == every


def send(sent: RayMetrics, monkeypatch: pytest.MonkeyPatch, rounds: int = 1) -> None:
    """As the thread does, without its waits; the last time as the study ends."""
    ended = iter([*[False] * (rounds - 1), True])
    monkeypatch.setattr(sent, "_ended", SimpleNamespace(wait=lambda seconds: next(ended)))
    sent._repeat()


def test_what_is_set_is_sent_again_and_again(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = RayMetrics()
    sent.set(TRIALS, 3, study="mine", state="complete")
    sent.set(LEFT, 12.5, study="mine")
    send(sent, monkeypatch, rounds=2)
    once = [
        ("raybench_trials", 3, {"study": "mine", "state": "complete"}),
        ("raybench_left_seconds", 12.5, {"study": "mine"}),
    ]
    assert ray.sent == once * 2
    assert sorted(ray.made) == ["raybench_left_seconds", "raybench_trials"]  # each once


def test_before_ray_is_connected_values_are_kept(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local cluster starts with the first trial, after the study has begun to tell."""
    ray.connected, sent = False, RayMetrics()
    sent.set(LEFT, 12.5, study="mine")
    sent.set(LEFT, 11.5, study="mine")
    send(sent, monkeypatch)
    assert ray.made == ray.sent == []
    ray.connected = True
    send(sent, monkeypatch)
    assert ray.sent == [("raybench_left_seconds", 11.5, {"study": "mine"})]


@pytest.mark.parametrize("unknown", [None, float("nan"), float("inf")])
def test_what_is_not_known_is_no_longer_sent(
    ray: Ray, monkeypatch: pytest.MonkeyPatch, unknown: float | None
) -> None:
    sent = RayMetrics()
    sent.set(LEFT, 12.5, study="mine")
    sent.set(LEFT, unknown, study="mine")
    send(sent, monkeypatch)
    assert ray.sent == []


def test_a_thread_sends_the_values_at_the_end_as_well(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REFRESH_S", 300)  # none of it passes
    with RayMetrics() as sent:
        sent.set(LEFT, 12.5, study="mine")
    assert ray.sent == [("raybench_left_seconds", 12.5, {"study": "mine"})]
    assert "raybench-metrics" not in {thread.name for thread in threading.enumerate()}


def test_ray_that_takes_no_metrics_fails_nothing_and_is_said_once(
    ray: Ray, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.error, sent = RuntimeError("no agent answers"), RayMetrics()
    sent.set(LEFT, 12.5, study="mine")
    sent.set(TRIALS, 1, study="mine", state="oom")
    with caplog.at_level(logging.WARNING):
        send(sent, monkeypatch, rounds=3)
    assert ray.sent == []
    assert [record.getMessage() for record in caplog.records] == [
        "no metrics are sent from now on: RuntimeError('no agent answers')"
    ]


def test_ray_is_never_imported_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert metrics._gauge_maker() is None
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())  # half imported
    assert metrics._gauge_maker() is None
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    assert metrics._gauge_maker() is None
