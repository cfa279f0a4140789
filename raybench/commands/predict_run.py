"""``predict`` from the request to the tables: what was measured, the answers, the file; and ``--what-if``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from raybench.analysis.collectives import Link, links, links_of_log, messages
from raybench.analysis.cost import Work, run_of
from raybench.analysis.objectives import HOUR_S, price_of
from raybench.analysis.resolve import Facts, resolve
from raybench.analysis.simulate.as_if import MoreDevices, more_devices
from raybench.analysis.simulate.outlook import Outlook, doublings, outlook, shapes_of
from raybench.analysis.simulate.sources import devices_of_node, group_of_study, groups_of_table
from raybench.analysis.simulate.steps import MeasuredGroup, ScalingMode
from raybench.analysis.simulate.what_if import Change, trial_to_ask, what_if
from raybench.commands.console import say, say_to_copy, shown_path
from raybench.commands.options import parse_values
from raybench.commands.predict import PredictOptions
from raybench.commands.process import DONE
from raybench.errors import RequestError
from raybench.machine.host import BACKENDS
from raybench.records.csv_files import rows_csv
from raybench.records.measured_elsewhere import read_measured, read_nccl_tests
from raybench.records.store import ResultsDirectory, foreign
from raybench.records.whole_files import replace_whole
from raybench.report.format import sentence
from raybench.report.prediction import (
    imported_table,
    more_rows,
    more_sentences,
    more_table,
    prediction_rows,
    prediction_table,
    print_outlooks,
    required_table,
)
from raybench.report.sections.settings import point_words, what_if_table
from raybench.report.table import print_table
from raybench.spec.knobs import KnobValue, Setting
from raybench.spec.network import Network, bits_per_s
from raybench.spec.plural import plural
from raybench.spec.user_input import received
from raybench.spec.validation import fields, from_validation

Device = tuple[str | None, str | None]  # cpu or cuda, and its name, where they are known


def swept_links(directory: Path | None, trials: Iterable[Device]) -> tuple[Link, ...]:
    """The lines of the sweep in ``directory``, if any, or of logs of nccl-tests; ``trials``: their devices.

    Raises ``RequestError`` where there is no sweep, or one over another backend or of other devices.
    """
    if directory is None:
        return ()
    logs = [directory] if directory.is_file() else sorted(directory.glob("*.log"))
    if logs and foreign(directory):
        logged = [message for log in logs for message in read_nccl_tests(log)]
        _check_devices(trials, [("cuda", each.device_name) for each in logged])
        return links_of_log(logged)
    with ResultsDirectory.open_readonly(directory) as store:
        if store.sweep().loopback_nic:  # a study is refused
            raise RequestError(
                f"--communication: a sweep as trainings send; what adapters carry is a --network (received "
                f"{directory})"
            )
        records = list(store.latest().values())
    _check_devices(trials, [(each.request.config.device, each.device_name) for each in records])
    return links(messages(records))


def _check_devices(trials: Iterable[Device], swept: Sequence[Device]) -> None:
    both = list(trials), swept
    backends = [{BACKENDS[device] for device, _ in each if device} for each in both]
    names = [{name for _, name in each if name} for each in both]
    for what, (own, others) in (("backend", backends), ("devices", names)):
        if own and others and not own & others:
            asked, given = (", ".join(sorted(each)) for each in (own, others))
            raise RequestError(f"--communication: a sweep of the trials' {what}, {asked} (received {given})")


@dataclass(frozen=True)
class Source:
    """What is predicted from, and what else the study says."""

    groups: Sequence[MeasuredGroup]
    devices: Sequence[Device]
    facts: Facts | None = None  # of a results directory
    devices_per_node: int = 1  # of the machine, as far as it is known
    notes: Sequence[str] = ()


def run_predict(options: PredictOptions, console: Console) -> int:
    """Read, fit, predict, print, write; the exit code. Raises ``RequestError`` for a wrong request."""
    _check(options)
    source = read_source(options.sources, options.scaling)
    price = price_of(source.facts.study) if source.facts else None
    if options.price_per_device_hour:
        price = options.price_per_device_hour / HOUR_S
    run = _run(options, source)
    if options.network is not None:
        rows = _on_network(options.network, options, source, run, price, console)
    else:
        rows = prediction_rows(_by_fit(options, source, run, price, console))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(options.output, rows_csv(rows))
        say_to_copy(console, f"Predictions: {shown_path(options.output)}")
    return DONE


def _on_network(
    network: Network,
    options: PredictOptions,
    source: Source,
    run: Work,
    price: float | None,
    console: Console,
) -> list[dict[str, KnobValue]]:
    """Print what more devices on a network would bring; the rows of the file."""
    if unsaid := [size for size in options.world_sizes or () if not network.says(size)]:
        a_node = f"{network.name}, nodes of {plural(network.devices_per_node, 'device')}"
        asked = f"{', '.join(map(str, unsaid))} devices"
        raise RequestError(f"--network: a network that says what joins {asked} (received {a_node})")
    more = source.facts and more_devices(
        source.facts, network, options.world_sizes, devices_per_node=source.devices_per_node
    )
    if not more or not more.points:
        raise RequestError(
            "--network: a results directory whose headline is ddp on several devices under weak scaling, "
            "with a timeline of its gradients, which a script has not, and --world-sizes on several nodes; "
            "under strong scaling more devices are measured (`scaling --as-if`)"
        )
    if not options.quiet:
        for table in (more_table(more, run, price), required_table(more)):
            print_table(table, console)
    _say_more(more, console)
    return more_rows(None, more, run, price)


def _say_more(more: MoreDevices | None, console: Console) -> None:
    for line in more_sentences(more):
        say(console, f"{sentence(line)}.")


def _by_fit(
    options: PredictOptions, source: Source, run: Work, price: float | None, console: Console
) -> list[Outlook]:
    """Print what a fit to several world sizes predicts, and where there is none what a network must bring."""
    links, outlooks = swept_links(options.communication, source.devices), list[Outlook]()
    for group in source.groups:
        per_node = options.devices_per_node or max(source.devices_per_node, group.devices_per_node)
        shapes = shapes_of(options.world_sizes or doublings(group), per_node, options.nodes)
        outlooks.append(outlook(group, shapes, run, price, options.scaling, links))
    more = None
    if source.facts and not any(each.answered or each.scaling != each.group.scaling for each in outlooks):
        more = more_devices(source.facts, None, options.world_sizes, devices_per_node=source.devices_per_node)
    costs = price is not None or bool(options.samples_per_epoch or options.epochs)
    tables = [prediction_table(each, costs=costs) for each in outlooks]
    if more is not None and more.requirements:  # in place of rows that are all refused
        tables = [required_table(more)]
    print_outlooks(outlooks, console, [] if options.quiet else tables)
    _say_more(more, console)
    left_out = dict.fromkeys(note for group in source.groups for note in group.notes)
    for note in (*source.notes, *left_out):
        say(console, f"note: {note}")
    return outlooks


def read_source(paths: Sequence[Path], scaling: ScalingMode | None) -> Source:
    """The groups of a results directory or of files.

    Raises:
        RequestError: it is neither, or has nothing to predict from.
    """
    path, *others = paths
    if others or not path.is_dir():
        table = read_measured(paths, scaling)
        devices = [(None, dict(row.context)["device_name"]) for row in table.rows]
        return Source(groups_of_table(table, scaling), devices)
    with ResultsDirectory.open_readonly(path) as store:
        environment = store.environment()
        results = resolve(store.study(), list(store.latest().values()), environment)
        per_node = devices_of_node(environment, results.study)
    group = group_of_study(results)
    if group is None:
        trials = f"{plural(len(results.records), 'trial')}, {len(results.complete)} complete"
        raise RequestError(
            f"{path}: a complete trial of steps, not oversubscribed, to predict from (received {trials})"
        )
    used = [(each.config.device, each.device_name) for each in results.references]
    return Source([group], used, results, per_node, store.warnings)


def _check(options: PredictOptions) -> None:
    """What can be refused before anything is read."""
    for name in ("scaling", "communication", "nodes", "devices_per_node"):
        if options.network is not None and getattr(options, name) is not None:
            option = name.replace("_", "-")
            raise RequestError(f"--{option}: excludes --network, on which the headline is simulated")
    if options.nodes is not None and options.devices_per_node is not None:
        raise RequestError("--nodes: not together with --devices-per-node, which says it too")
    if options.nodes is not None and options.world_sizes is None:
        raise RequestError("--nodes: goes with --world-sizes, one number for each")
    if options.output is not None and options.output.exists():
        raise RequestError(f"--output: a new file, nothing is overwritten (received {options.output})")


def _run(options: PredictOptions, source: Source) -> Work:
    """The run that costs are of."""
    training = source.facts.study.training if source.facts else None
    samples = options.samples_per_epoch or (source.facts.epoch_samples if source.facts else None)
    if options.epochs is not None and samples is None:
        raise RequestError("--epochs: goes with --samples-per-epoch, how long an epoch is")
    epochs = options.epochs or (training.epochs if training else None)
    if options.samples_per_epoch is not None and epochs is None:
        epochs = 1
    return run_of(samples, epochs)


OPTION, LINK = "--what-if", "link"
NAMES = ("bucket_cap_mb", "batch_size", "gradient_accumulation", "gradient_compression", LINK)


def parse_changes(text: str) -> tuple[Change, ...]:
    """``bucket_cap_mb=1,5,25 batch_size=256``: each combination of the values.

    Raises ``RequestError`` for a name that is none, one given twice, or a value that breaks its rule.
    """
    lists = dict[str, tuple[Any, ...]]()
    for part in text.replace(";", " ").split():
        name, equals, values = part.partition("=")
        if name not in NAMES or not equals or not values:
            rule = f"NAME=VALUES, the name one of {', '.join(NAMES)}"
            raise RequestError(f"{OPTION}: {rule} (received {received(part)})")
        field = "link_bits_per_s" if name == LINK else name
        if field in lists:
            raise RequestError(f"{OPTION}: each name once (received {name} twice)")
        found = parse_values(values, f"{OPTION} {name}")
        listed = found if isinstance(found, tuple) else (found,)
        lists[field] = tuple(dict.fromkeys(_value(name, each) for each in listed))
    if not lists:
        raise RequestError(f"{OPTION}: NAME=VALUES, as bucket_cap_mb=1,5,25 (received {received(text)})")
    return tuple(
        Change(**dict(zip(lists, values, strict=True))) for values in itertools.product(*lists.values())
    )


def _value(name: str, value: Any) -> Any:
    """The rate of a link in bit/s, or a knob's value as a setting has it."""
    if name == LINK:
        rate = bits_per_s(str(value))
        if rate is None:
            rule = "link: rates above 0 such as 10Gbit/s"
            raise RequestError(f"{OPTION}: {rule} (received {received(value)})")
        return rate
    try:
        return getattr(Setting.model_validate({name: value}), name)
    except ValidationError as error:
        (fault,) = from_validation(error, {name: value}, fields(Setting))
        raise RequestError(f"{OPTION}: {fault}") from None


def run_what_if(options: PredictOptions, console: Console) -> int:
    """Print what changes of a directory's headline would bring, and what was measured.

    Raises ``RequestError`` for other options than say it, and where nothing can be said.
    """
    taken = {"what_if": options.what_if, "communication": options.communication, "quiet": options.quiet}
    if options != PredictOptions(options.sources, **taken):  # type: ignore[arg-type]
        raise RequestError(f"{OPTION}: with --communication and --quiet only, it predicts other settings")
    changes, directory = parse_changes(options.what_if), options.sources[0]
    if len(options.sources) > 1 or not directory.is_dir():
        raise RequestError(f"{OPTION}: a results directory of a study (received {directory})")
    with ResultsDirectory.open_readonly(directory) as store:
        results = resolve(store.study(), list(store.latest().values()), store.environment())
    record = trial_to_ask(results)
    if record is None:
        raise RequestError(
            f"{OPTION}: {directory} has no complete trial of ddp on several devices with all variants and a "
            "timeline of its gradients, which trials of a scaling curve have since they are recorded"
        )
    links = swept_links(options.communication, [(record.config.device, record.device_name)])
    found = what_if(record, changes, results.fit, links=links)
    assert found is not None  # it can be asked
    table = what_if_table(results, found)
    if not options.quiet:
        print_table(table, console)
        return DONE
    for point in found.points:
        say(console, point_words(point))
    say(console, table.caption)
    return DONE


# --- ``report FILE...``


def report_files(files: Sequence[Path], scaling: ScalingMode | None, console: Console, *, quiet: bool) -> int:
    """Print what the files say; the exit code. Raises ``RequestError`` for one that cannot be read."""
    models = [  # the next doublings, on nodes as full as the fullest that was measured
        outlook(group, shapes_of(doublings(group), group.devices_per_node), run_of(), None)
        for group in groups_of_table(read_measured(files, scaling), scaling)
    ]
    print_outlooks(models, console, [] if quiet else [imported_table(each) for each in models])
    for note in dict.fromkeys(note for model in models for note in model.group.notes):
        say(console, f"note: {note}")
    return DONE
