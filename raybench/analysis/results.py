"""Everything that a report draws, from a study and its records."""

from __future__ import annotations

from dataclasses import dataclass, fields

from raybench.analysis.cost import CostPoint, Work, costs, run_of
from raybench.analysis.findings.case import Around
from raybench.analysis.findings.diagnose import diagnose_study
from raybench.analysis.findings.finding import Finding, FindingName, Need
from raybench.analysis.findings.verifications import Verification, verifications
from raybench.analysis.labels import difference_words
from raybench.analysis.phases import PhaseTable, phase_table
from raybench.analysis.recommendation import DeviceAdvice, Recommendation, device_advice, recommendation
from raybench.analysis.resolve import Facts
from raybench.analysis.settings import ShownSetting, shown_settings
from raybench.analysis.simulate.as_if import MoreDevices, more_devices
from raybench.analysis.simulate.outlook import Outlook
from raybench.analysis.simulate.sources import devices_of_node, outlook_of_study
from raybench.analysis.summary import Summary, summarize, summarize_trials
from raybench.analysis.training import TrainingResults, analyse_training


@dataclass(frozen=True)
class StudyResults(Facts):
    """What a study has found: complete, so that a report only draws it."""

    summaries: tuple[Summary, ...]  # of each setting, and of what has no figures
    trials: tuple[Summary, ...]  # of each record, by itself
    best_label: str
    recommendation: Recommendation | None  # what to use
    diagnosis: tuple[Finding, ...]  # what makes figures useless first, then what explains the most time
    not_examined: tuple[tuple[FindingName, Need], ...]  # what the headline has no data for
    verifications: tuple[Verification, ...]  # of what the diagnosis proposes, where any was tested
    settings: tuple[ShownSetting, ...]  # those that the first table and plots show
    phases: PhaseTable | None  # of the headline
    run: Work  # a whole training
    costs: tuple[CostPoint, ...]  # of a run, as it was trained where it was
    device_advice: DeviceAdvice | None  # what is compared with one device
    outlook: Outlook | None  # what more devices would bring: of the headline's setting
    more_devices: MoreDevices | None  # the same at the headline's batch, whatever says it
    training: TrainingResults | None
    around: Around


def found_in(base: Facts, around: Around) -> StudyResults:
    """All that follows from ``base``."""
    study, machine = base.study, around.environment
    epochs = study.training.epochs if study.training else None
    run = run_of(base.epoch_samples, epochs)
    training = analyse_training(base)
    diagnosis = diagnose_study(base, around)
    verified = verifications(base, diagnosis.first)
    use = recommendation(base, verified)
    phases = None
    if base.headline and base.headline_scaling:
        phases = phase_table(base.headline, base.headline_scaling, base.waterfall, base.records)
    per_node = devices_of_node(machine, study) if machine else 1
    fitted = outlook_of_study(base, run, per_node)
    results = StudyResults(
        **{each.name: getattr(base, each.name) for each in fields(Facts)},
        summaries=tuple(summarize(base.everything, base.fit)),
        trials=tuple(summarize_trials(base.everything, base.fit)),
        best_label=difference_words(study, base.best.config) if base.best else "",
        recommendation=use,
        diagnosis=diagnosis.first,
        not_examined=diagnosis.not_examined,
        verifications=verified,
        settings=shown_settings(base, use.config if use else None),
        phases=phases,
        run=run,
        costs=costs(base, run, training),
        device_advice=device_advice(base, use),
        outlook=fitted,
        more_devices=more_devices(base, study.network, study.scaling.as_if or None, fitted, per_node),
        training=training,
        around=around,
    )
    vars(results).update({**vars(base), **vars(results)})  # what was worked out of the facts, too
    return results
