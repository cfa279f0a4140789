"""raybench's metrics: gauges that are sent through Ray, for whoever scrapes its nodes."""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

# A gauge that was not set since Ray's last report is not in the next one, and soon forgotten; Ray reports
# every 10 s. Six microseconds a series (two cores of an EPYC): of a whole default study 0.01% of a core.
REFRESH_S = 5.0

_OF_STUDY = ("study",)
_OF_SETTING = ("study", "world_size", "strategy", "setting")


@dataclass(frozen=True)
class Metric:
    """One gauge: its name with its unit, as Prometheus asks; what it says; its tags."""

    name: str
    description: str
    tags: tuple[str, ...]


TRIALS = Metric("raybench_trials", "Trials that ended so since the command started", ("study", "state"))
STAGE_DONE = Metric("raybench_stage_trials_done", "Trials of the stage that are done", _OF_STUDY)
STAGE_PLANNED = Metric("raybench_stage_trials_planned", "Trials of the stage, where known", _OF_STUDY)
LEFT = Metric("raybench_left_seconds", "Time until the stage, and what it reserves for, is done", _OF_STUDY)
THROUGHPUT = Metric("raybench_throughput_samples_per_second", "Samples of all devices", _OF_SETTING)
STEP_TIME = Metric("raybench_step_time_seconds", "Optimizer step to optimizer step", _OF_SETTING)
EFFICIENCY = Metric("raybench_efficiency_ratio", "Speed-up over the number of devices", _OF_SETTING)
EXPOSED = Metric("raybench_exposed_communication_seconds", "Transfers that no compute hides", _OF_SETTING)
BUS_BANDWIDTH = Metric(
    "raybench_bus_bandwidth_bytes_per_second", "Of the all-reduces alone, as nccl-tests has it", _OF_SETTING
)
METRICS = (TRIALS, STAGE_DONE, STAGE_PLANNED, LEFT, THROUGHPUT, STEP_TIME, EFFICIENCY, EXPOSED, BUS_BANDWIDTH)


class RayMetrics:
    """The newest value of every series; as a context a thread sends them through Ray, once it is connected.

    Nothing raises: where Ray takes no metrics the study goes on without, and a line in the log says so.
    """

    def __init__(self) -> None:
        self.values: dict[tuple[Metric, tuple[str, ...]], float] = {}  # by the values of its tags
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True, name="raybench-metrics")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(REFRESH_S)  # whatever Ray does

    def set(self, metric: Metric, value: float | None, **tags: str) -> None:
        """The value of a series from now on; None: it is not known, and no longer sent."""
        series = (metric, tuple(tags[name] for name in metric.tags))
        if value is None or not math.isfinite(value):
            self.values.pop(series, None)
        else:
            self.values[series] = value

    def _repeat(self) -> None:
        gauges: dict[Metric, Any] = {}
        try:
            is_last = False
            while not is_last:
                is_last = self._ended.wait(REFRESH_S)  # what was set since is sent as well
                if (make := _gauge_maker()) is None:
                    continue
                for (metric, tags), value in list(self.values.items()):
                    if metric not in gauges:
                        gauges[metric] = make(metric)
                    gauges[metric].set(value, tags=dict(zip(metric.tags, tags, strict=True)))
        except Exception as error:  # whatever it is: a study is not about its metrics
            logging.getLogger(__name__).warning("no metrics are sent from now on: %r", error)


def _gauge_maker() -> Callable[[Metric], Any] | None:
    """What makes a gauge of Ray's; None while Ray is not connected. Ray is not imported for it."""
    ray = sys.modules.get("ray")
    is_connected = getattr(ray, "is_initialized", None)
    if is_connected is None or not is_connected():
        return None
    from ray.util.metrics import Gauge

    return lambda metric: Gauge(metric.name, metric.description, metric.tags)
