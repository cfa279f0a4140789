"""Whether every node of a cluster can read what a study needs, checked before anything starts.

The workload's module and data on each node; for training the results directory too, where checkpoints lie: a
training whose leader moved to a node that does not see them would begin again unnoticed.
"""

from __future__ import annotations

import ast
import importlib.util
import secrets
from pathlib import Path

from raybench.errors import RequestError
from raybench.launch.cluster import Cluster
from raybench.machine.child import call_apart
from raybench.machine.host import WorkerNeeds
from raybench.records.whole_files import cannot
from raybench.spec.knobs import MAX
from raybench.spec.study import Study
from raybench.spec.workloads import OwnCodeSpec, ScriptSpec, WorkloadSpec
from raybench.workloads import Checked

STARTS_S = 60.0  # a process, and torch in it
MOST_CALLS = 9  # of the user's code, as build() and dataset(): each may take as long as a trial


def check_workload(cluster: Cluster, study: Study, needs: WorkerNeeds) -> Checked:
    """What is found of a workload before the workers start, on this machine or on the first node.

    Raises ``RequestError`` for a workload that cannot be had somewhere, or is not the same everywhere.
    """
    if study.workload.name == "mlp":  # to look at it torch is imported, which takes seconds
        return Checked()
    if isinstance(study.workload, ScriptSpec):
        if cluster.is_local:
            read_script(study.workload)
        else:
            cluster.ask(cluster.working_nodes(needs), read_script, study.workload)
        return Checked()
    arguments = (study.workload, study.data, study.training is not None, needs.device, _one_batch(study))
    if cluster.is_local:
        if isinstance(study.workload, OwnCodeSpec):  # on other nodes it is looked at in tasks of Ray's
            what = f"workload.{study.workload.KEY}: {study.workload.name}"
            return call_apart(what, MOST_CALLS * study.measure.timeout_seconds + STARTS_S, _look, *arguments)
        return _look(*arguments)
    nodes = cluster.working_nodes(needs)
    found = dict(zip(map(str, nodes), cluster.ask(nodes, _look, *arguments), strict=True))
    of_nodes = {node: checked.samples for node, checked in found.items()}
    if len(set(of_nodes.values())) > 1:
        lines = (
            f"{node}: {samples[0]:,} training and {samples[1]:,} test samples" if samples else f"{node}: none"
            for node, samples in of_nodes.items()
        )
        raise RequestError("data: the same on every node", *lines)
    return next(iter(found.values()), Checked())


def _one_batch(study: Study) -> int:
    """Samples of a micro-batch of the default on one device; 1 where the largest is looked for."""
    batch, accumulation = study.knobs.batch_size[0], study.knobs.gradient_accumulation[0]
    if batch == MAX:
        return 1
    return batch if study.scaling.mode == "weak" else max(batch // accumulation, 1)  # type: ignore[no-any-return]


def refuse_unseen(cluster: Cluster, directory: Path, needs: WorkerNeeds) -> None:
    """Raise ``RequestError`` where a node does not see what the driver writes there, or cannot write itself.

    ``directory`` is made where it is missing, and gone again where it is refused.
    """
    if cluster.is_local:
        return
    is_new = not directory.exists()
    marker, content = directory / f".seen-{secrets.token_hex(4)}", secrets.token_hex(16)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        marker.write_text(content)
    except OSError as error:
        raise RequestError(cannot(directory, "be written", error)) from None
    nodes = cluster.working_nodes(needs)
    try:
        seen = cluster.ask(nodes, _sees_and_writes, str(marker), content)
    finally:
        marker.unlink(missing_ok=True)
        if is_new:
            directory.rmdir()
    blind = [str(node) for node, sees in zip(nodes, seen, strict=True) if not sees]
    if blind:
        raise RequestError(
            "--output: for training a directory that every node reads and writes, as checkpoints are there; "
            f"not so on {', '.join(blind)} (received {str(directory)!r})"
        )


def read_script(script: ScriptSpec) -> None:
    """Raise ``RequestError`` for a script that is not there, or no Python."""
    if script.is_module:
        name = script.script.partition(".")[0]
        try:
            found = importlib.util.find_spec(name) or (Path.cwd() / name).exists()
        except (ImportError, ValueError):
            found = False
        if not found and not Path(f"{name}.py").exists():
            raise RequestError(f"--module: a module that Python finds (received {script.script!r})")
        return
    try:
        ast.parse(Path(script.script).read_bytes(), script.script)
    except OSError as error:
        raise RequestError(f"--script: {cannot(Path(script.script), 'be read', error)}") from None
    except (SyntaxError, ValueError) as error:
        raise RequestError(f"--script: {script.script} is not Python: {error}") from None


def _look(
    workload: WorkloadSpec, data: str | None, is_trained: bool, device: str, batch_size: int
) -> Checked:
    from raybench import workloads

    return workloads.check(workload, data, is_trained=is_trained, device=device, batch_size=batch_size)


def _sees_and_writes(marker: str, content: str) -> bool:
    path = Path(marker)
    own = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    try:
        own.touch()
        own.unlink()
        return path.read_text() == content
    except OSError:
        return False
