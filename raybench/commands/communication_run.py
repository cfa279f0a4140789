"""``communication`` from the request to the report."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from raybench.commands.measuring import measure_and_report, needs_of, open_results, resources_there, workers
from raybench.commands.options import Options
from raybench.commands.progress import Display, StudyProgress
from raybench.driver.sweep import SweepPlan, make_sweep_plan, run_sweep
from raybench.errors import RequestError
from raybench.launch.cluster import Cluster
from raybench.machine.environment import of_nodes
from raybench.records.store import ResultsDirectory
from raybench.spec.plural import plural
from raybench.spec.sweep import Sweep
from raybench.spec.validation import fields, from_validation


def run_communication(options: Options, console: Console) -> int:
    """Plan, run, analyse, report; the exit code. Raises ``RequestError`` for a wrong request."""
    tell, sweep = Display(console, quiet=options.quiet).line, sweep_of(options)
    with closing(Cluster(address=options.address, name=Sweep.name)) as cluster:
        device = cluster.device_kind() if sweep.resources.device == "auto" else sweep.resources.device
        resources = sweep.resources.model_copy(update={"device": device})
        sweep = sweep.model_copy(update={"resources": resources})
        plan = make_sweep_plan(sweep, resources_there(cluster, sweep, options, tell))
        now = of_nodes(cluster.environments(needs_of(resources)))
        if sweep.loopback_nic and not now.rdma_devices:
            raise RequestError(
                "--loopback-nic: of adapters of InfiniBand, RoCE or EFA; over sockets the kernel hands "
                "messages on without an adapter (received a node without one)"
            )
        with open_results(plan.sweep, options.output, now, resume=options.resume) as store:
            return measure_and_report(
                store,
                lambda display: _measure(options, plan, cluster, store, display),
                command=Sweep.name,
                quiet=options.quiet,
            ).code


def sweep_of(options: Options) -> Sweep:
    """The sweep as it was typed; with ``--resume`` that of the directory, changed by what was typed."""
    data: dict[str, Any] = {}
    if options.resume:
        assert options.output is not None
        with ResultsDirectory.open_readonly(options.output) as store:
            data = store.sweep().model_dump()
    for field, value in options.overrides:
        table, _, name = field.rpartition(".")
        (data.setdefault(table, {}) if table else data)[name] = value
    try:
        return Sweep.model_validate(data)
    except ValidationError as error:
        raise RequestError(*from_validation(error, data, fields(Sweep))) from None


def _measure(
    options: Options, plan: SweepPlan, cluster: Cluster, store: ResultsDirectory, display: Display
) -> list[str]:
    """Run the sweep and end every process; the notes on the results."""
    sweep = plan.sweep
    with workers(cluster, sweep, plan, store, display) as runner:
        collectives = plural(len(sweep.collectives), "collective")
        display.stage(f"Sweeping {collectives} over {plural(len(sweep.message_bytes), 'size')}")
        lost = run_sweep(plan, runner, store, StudyProgress(None, display), options.retry)
    notes = [
        f"placement {name}: on one node the same as {plan.placements[0]}, not measured"
        for name in sweep.placement
        if name not in plan.placements
    ]
    return notes + [f"not measured, since nodes are gone: {each}" for each in lost]
