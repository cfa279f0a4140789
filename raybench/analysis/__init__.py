"""From records to conclusions: pure functions, frozen values. Imports neither torch, ray nor pandas."""

from raybench.analysis.answer import answer, failures_words
from raybench.analysis.crossover import Crossover, crossover
from raybench.analysis.efficiency import (
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
from raybench.analysis.findings import Finding, FindingName, Severity
from raybench.analysis.objectives import Candidate, objective_value, pareto_front
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
from raybench.analysis.stability import findings, straggler
from raybench.analysis.statistics import Estimate, geometric, relative_half_width, trimmed_mean
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
from raybench.analysis.waterfall import LoggerCheck, Parts, Waterfall, karp_flatt, waterfall

__all__ = [
    "Baseline",
    "BatchCurve",
    "BatchPoint",
    "Best",
    "Candidate",
    "Comparison",
    "Confirmation",
    "Crossover",
    "Curve",
    "CurvePoint",
    "Estimate",
    "Finding",
    "FindingName",
    "Gain",
    "Goodput",
    "LoggerCheck",
    "Parity",
    "Parts",
    "Scaling",
    "Severity",
    "Status",
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
    "crossover",
    "failures_words",
    "findings",
    "gain",
    "geometric",
    "karp_flatt",
    "objective_value",
    "pareto_front",
    "relative_half_width",
    "scaling",
    "step_time",
    "straggler",
    "summarize",
    "throughput",
    "to_pandas",
    "trimmed_mean",
    "waterfall",
]
