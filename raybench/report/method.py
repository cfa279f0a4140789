"""How it was measured, on what, and when: the sentences and lines of a report about itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from raybench.analysis.results import StudyResults
from raybench.analysis.stats.pool import TYPICAL
from raybench.analysis.summary import model_name
from raybench.machine.host import BACKENDS, KEPT_BY_MALLOC
from raybench.records.record import TrialRecord
from raybench.report.format import number_words
from raybench.spec.plural import bytes_words, plural
from raybench.spec.user_input import flat
from raybench.spec.workloads import ScriptSpec

WEAK = "the batch per device stays the same, speed-up = throughput(n) / throughput(1)"
STRONG = "the global batch stays the same, speed-up = step time(1) / step time(n)"


def environment_lines(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Dotted names and values of what environment.json holds, without what is unknown.

    Of a cluster's nodes their names; the rest is of the first one.
    """
    nodes = environment.get("nodes") or ()
    first = {name: _numbered(value) for name, value in environment.items() if name != "nodes"}
    lines = [
        (dotted.removesuffix("_bytes").replace("_", " "), _words(dotted, value))
        for dotted, value in flat(first)
        if value not in (None, "", [], ())
    ]
    if nodes:
        lines.insert(0, ("nodes", ", ".join(node["hostname"] for node in nodes)))
    return lines


def _numbered(value: Any) -> Any:
    """A list of tables as a table by their numbers."""
    is_of_tables = isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value)
    return {str(number): each for number, each in enumerate(value)} if is_of_tables else value


def _words(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, int | float):
        return bytes_words(value)
    if isinstance(value, list | tuple):
        return ", ".join(str(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def measured_words(results: StudyResults) -> str:
    """ "mlp on 2 CPU workers on AMD EPYC, gloo · torch 2.14.1 · 2026-11-22"; empty where nothing was."""
    most = max(results.records, key=lambda each: each.request.config.world_size, default=None)
    record = results.headline or most
    if record is None:
        return ""
    model = model_name(record.config.workload)
    if record.steps is not None and record.steps.num_parameters is not None:
        model += f" ({plural(record.steps.num_parameters, 'parameter')})"
    return on_words(model, record, results.records, results.around.described)


def on_words(
    what: str, record: TrialRecord, records: Iterable[TrialRecord], environment: Mapping[str, Any]
) -> str:
    """``what`` on the devices of ``record``, torch's version, and when the first of ``records`` began.

    ``environment`` is what environment.json holds, as far as it is known.
    """
    config = record.request.config
    where = hardware_words(record, str(environment.get("cpu_model") or ""))
    version = (environment.get("packages") or {}).get("torch")
    torch = f"torch {version}" if version else ""
    parts = [f"{what} on {where}, {BACKENDS[config.device]}", torch, began_words(records)]
    return " · ".join(part for part in parts if part)


def hardware_words(record: TrialRecord, cpu_model: str) -> str:
    """The devices of a trial: "8 x NVIDIA H200 on 2 nodes"."""
    size, nodes = record.request.config.world_size, record.nodes
    name = record.device_name or cpu_model
    devices = f"{size} x {name}" if name else plural(size, "device")
    if record.request.config.device == "cpu":
        devices = plural(size, "CPU worker") + (f" on {name}" if name else "")
    return f"{devices} on {nodes} nodes" if nodes and nodes > 1 else devices


def began_words(records: Iterable[TrialRecord]) -> str:
    """When the first of ``records`` began, to the minute; empty without one."""
    began = min((record.started_at for record in records), default="")
    return f"{began[:16].replace('T', ' ')} UTC" if began else ""


BLOCKS = (
    "In each round every variant of the step runs one block of steps, in shuffled order; the first steps of "
    "a block do not count."
)
ESTIMATOR = (
    "The level of a variant in a trial is the mean over rounds of its logarithm, 10% trimmed from 10 rounds "
    "on. All trials are one fit with random effects of trials, variants and starts. Totals (time, cost) are "
    "of the arithmetic mean step."
)
AGAIN = (
    'Intervals are 95%, of this run. "In another run" adds what one start of the workers differs by from '
    "another, and the noise of the other run."
)
BASE = "One device runs the bare model, without DDP, with the same batch, precision and accumulation."
BASE_OF_A_SCRIPT = "One device is the same script with one rank, in a start of its own."
SCRIPT = (
    "{name} ran unchanged, in new processes for each trial, until enough optimizer steps were timed. A step "
    "is all that it does from one to the next; efficiency is of its samples, which may vary with the "
    "devices. Where its DDP can be switched off, half of the blocks sent no gradients, and what it "
    "trained was thrown away."
)
KEPT_BY_VARIABLES = ", ".join(f"{name}={value}" for name, (_, value) in KEPT_BY_MALLOC.items())
KEPT_MEMORY = (
    "On CPUs the workers keep what a step frees for the next one, as a GPU's allocator does, unless "
    "variables set malloc; without, a step may pay thousands of page faults. A program of your own keeps it "
    f"with {KEPT_BY_VARIABLES}."
)

TF32 = (
    "On GPUs fp32, bf16 and fp16 switch TF32 off, for convolutions too, where torch has it on by default. "
    'The same program outside raybench may be faster; precision = "default" leaves TF32 as it is.'
)
READ = "Real input is read in an endless order: no step has a start of the loader in it."


def method_words(results: StudyResults) -> list[str]:
    """How it was measured, in sentences."""
    asked = sum(record.request.kind != "training" for record in results.records)
    measured = [record.steps for record in results.records if record.steps is not None]
    if not asked:
        return ["No steps were measured."]
    if not measured:
        return [f"{plural(asked, 'trial')} {'was' if asked == 1 else 'were'} tried, none completed."]
    mode, script = results.study.scaling.mode, results.study.workload
    rounds = number_words([len(each.rounds) for each in measured], "round")
    own = _script_words(script, results) if isinstance(script, ScriptSpec) else _device_words(results)
    # what the steps do not contain, as the workers found it in the workload
    left_out = next((each.left_out for each in measured if each.left_out), ())
    return [
        f"{len(measured)} of {plural(asked, 'trial')} completed, with {rounds} each. {BLOCKS}",
        f"{ESTIMATOR} {_spreads_words(results)}",
        AGAIN,
        f"{mode.capitalize()} scaling: {WEAK if mode == 'weak' else STRONG}; efficiency = speed-up / n. "
        f"{BASE_OF_A_SCRIPT if isinstance(script, ScriptSpec) else BASE}",
        *([f"Not in these steps: {', '.join(left_out)}."] if left_out else []),
        *own,
        *([READ] if results.study.workload.input == "real" else []),
    ]


def _spreads_words(results: StudyResults) -> str:
    """From what the fit began, and what it found."""
    found, known = results.fit.pool.spreads, results.fit.pool.known
    source = "typical" if known in TYPICAL.values() else "of earlier studies on this machine"
    return (
        f"Their standard deviations: {found.trial:.1%} between trials and {found.unit:.1%} between variants "
        f"within one ({source}: {known.trial:.1%} and {known.unit:.1%}); {found.start:.1%} and "
        f"{found.start_unit:.1%} between starts."
    )


def _device_words(results: StudyResults) -> list[str]:
    """What raybench sets on a device, and torch does not."""
    configs = [record.config for record in results.measured]
    switched = any(each.setting.precision not in ("tf32", "default") for each in configs)
    devices = {each.device for each in configs}
    return [*([KEPT_MEMORY] if "cpu" in devices else []), *([TF32] if "cuda" in devices and switched else [])]


def _script_words(script: ScriptSpec, results: StudyResults) -> list[str]:
    """What was done with a script."""
    measured = [record.steps for record in results.measured if record.steps is not None]
    unknown = dict.fromkeys(steps.missing["local"] for steps in measured if "local" in steps.missing)
    replaced = {name: value for steps in measured for name, value in steps.overridden.items()}
    named = ", ".join(f"{name}={value}" for name, value in replaced.items())
    return [
        SCRIPT.format(name=script.name),
        *(f"Communication and skew are not known, as {why}." for why in unknown),
        *([f"The study's knobs replaced these arguments of its DDP: {named}."] if named else []),
    ]
