"""From records to conclusions: pure functions, frozen values. Imports neither torch, ray nor pandas."""

from raybench.analysis.answer import answer, failures_words
from raybench.analysis.attribution import Attribution, ModelChange, attribution, between
from raybench.analysis.batch_lines import BatchLine, batch_lines
from raybench.analysis.contradictions import Contradiction, contradictions
from raybench.analysis.cost import CostPoint, costs, when_to_use, works
from raybench.analysis.crossover import Crossover, crossover
from raybench.analysis.diagnosis.configurations import Configuration, configurations
from raybench.analysis.diagnosis.findings import Finding, FindingName, Severity
from raybench.analysis.diagnosis.stability import findings, straggler
from raybench.analysis.estimates.efficiency import (
    Baseline,
    Gain,
    Scaling,
    Status,
    Verdict,
    gain,
    scaling,
    step_time,
    throughput,
)
from raybench.analysis.estimates.phases import PhaseTable, phase_table
from raybench.analysis.estimates.statistics import Estimate, geometric, relative_half_width, trimmed_mean
from raybench.analysis.estimates.waterfall import LoggerCheck, Parts, Waterfall, karp_flatt, waterfall
from raybench.analysis.hiding import Hiding, hiding
from raybench.analysis.objectives import Candidate, objective_value, pareto_front
from raybench.analysis.published import Figure, load_figures
from raybench.analysis.published_pairs import Pair, pairs
from raybench.analysis.results import (
    BatchCurve,
    BatchPoint,
    Best,
    Confirmation,
    Curve,
    CurvePoint,
    StudyResults,
    analyse,
)
from raybench.analysis.strategies import ParityVerdict, StrategyRow, compare_strategies, loss_parity
from raybench.analysis.summary import TrialSummary, summarize, to_pandas
from raybench.analysis.training import (
    Comparison,
    Goodput,
    Parity,
    TrainedGroup,
    TrainedRun,
    TrainingResults,
    analyse_training,
)

__all__ = [
    "Attribution",
    "Baseline",
    "BatchCurve",
    "BatchLine",
    "BatchPoint",
    "Best",
    "Candidate",
    "Comparison",
    "Configuration",
    "Confirmation",
    "Contradiction",
    "CostPoint",
    "Crossover",
    "Curve",
    "CurvePoint",
    "Estimate",
    "Figure",
    "Finding",
    "FindingName",
    "Gain",
    "Goodput",
    "Hiding",
    "LoggerCheck",
    "ModelChange",
    "Pair",
    "Parity",
    "ParityVerdict",
    "Parts",
    "PhaseTable",
    "Scaling",
    "Severity",
    "Status",
    "StrategyRow",
    "StudyResults",
    "TrainedGroup",
    "TrainedRun",
    "TrainingResults",
    "TrialSummary",
    "Verdict",
    "Waterfall",
    "analyse",
    "analyse_training",
    "answer",
    "attribution",
    "batch_lines",
    "between",
    "compare_strategies",
    "configurations",
    "contradictions",
    "costs",
    "crossover",
    "failures_words",
    "findings",
    "gain",
    "geometric",
    "hiding",
    "karp_flatt",
    "load_figures",
    "loss_parity",
    "objective_value",
    "pairs",
    "pareto_front",
    "phase_table",
    "relative_half_width",
    "scaling",
    "step_time",
    "straggler",
    "summarize",
    "throughput",
    "to_pandas",
    "trimmed_mean",
    "waterfall",
    "when_to_use",
    "works",
]
