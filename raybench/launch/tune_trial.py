"""What runs inside a Tune trial: a worker group of the trial's own, which serves this trial alone.

Same workers, same measuring code, same outcome as in the group that serves a whole study; only its size and
its life are the trial's. So this is the driver's part for one trial, in a process of Tune's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from raybench.analysis.scaling import scaling
from raybench.errors import GroupLostError
from raybench.launch.nodes import alive_nodes
from raybench.launch.worker_group import WorkerGroup
from raybench.machine.host import WorkerNeeds
from raybench.records.messages import Lost, Message, Outcome, Progress, Started, Task
from raybench.records.record import TrialRecord

Metrics = dict[str, float | str]


def measure(
    config: dict[str, Any],
    *,
    mailbox: Any,
    needs: WorkerNeeds,
    storage: str,
    name: str,
    sys_path: list[str],
) -> Metrics:
    """Measure the task that ``config["number"]`` names; what Tune is to show of it.

    The outcome itself, step times included, goes to the driver by ``mailbox``.
    """
    sys.path += [path for path in sys_path if path not in sys.path]
    number: int = config["number"]

    def tell(content: Started | Progress | Outcome | Lost) -> Any:
        return mailbox.tell.remote(Message(number, content))

    ray.get(tell(Started(ray.get_runtime_context().current_actor)))
    task: Task = ray.get(mailbox.take.remote())
    while task.number != number:  # of a process that died before it took its own
        task = ray.get(mailbox.take.remote())
    try:
        outcome = _outcome(task, tell, needs=needs, storage=Path(storage), name=name)
    except GroupLostError as lost:
        ray.get(tell(Lost(str(lost))))
        return {"state": "lost"}
    ray.get(tell(outcome))
    return metrics(outcome.to_record(task.request, study="", suggestion=None, started_at=""))


def _outcome(task: Task, tell: Any, *, needs: WorkerNeeds, storage: Path, name: str) -> Outcome:
    """Start the workers, measure, and end them. Raises ``GroupLostError`` where the trial never began."""
    config = task.request.config
    group, whole = None, False
    try:
        group = WorkerGroup(
            config.world_size,
            config.environment,
            task.number,
            name=name,
            needs=needs,
            storage=storage,
            nodes=task.nodes,
        )
        info = group.await_ready(lambda: _are_there(task.nodes))
        everyone = tuple(member.rank for member in info.members)
        group.post(task.request, everyone, Path(task.results) if task.results else None, tell)
        outcome = group.outcome()
        whole = not outcome.ends_group
        return outcome
    finally:
        if group is not None:
            group.stop(at_once=not whole)


def _are_there(nodes: Sequence[str]) -> bool:
    """Whether Ray still has all of these: it waits for a place on a node that is gone."""
    return {*nodes} <= {node.node_id for node in alive_nodes()}


def metrics(record: TrialRecord) -> Metrics:
    """What Tune shows of a trial: its state, and its efficiency with its interval."""
    found: Metrics = {"state": record.state}
    efficiency = scaling(record).efficiency if record.steps is not None else None
    if efficiency is not None:
        found["efficiency"] = efficiency.value
        found["efficiency_low"], found["efficiency_high"] = efficiency.low, efficiency.high
    return found
