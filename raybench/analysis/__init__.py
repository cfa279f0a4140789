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
from raybench.analysis.strategies import ParityVerdict, StrategyRow, compare_strategies, loss_parity
from raybench.analysis.summary import TrialSummary, summarize, to_pandas
from raybench.analysis.waterfall import LoggerCheck, Parts, Waterfall, karp_flatt, waterfall

__all__ = [
    "Baseline",
    "BatchCurve",
    "BatchPoint",
    "Best",
    "Candidate",
    "Confirmation",
    "Crossover",
    "Curve",
    "CurvePoint",
    "Estimate",
    "Finding",
    "FindingName",
    "Gain",
    "LoggerCheck",
    "ParityVerdict",
    "Parts",
    "Scaling",
    "Severity",
    "Status",
    "StrategyRow",
    "StudyResults",
    "TrialSummary",
    "Verdict",
    "Waterfall",
    "analyse",
    "answer",
    "compare_strategies",
    "crossover",
    "failures_words",
    "findings",
    "gain",
    "geometric",
    "karp_flatt",
    "loss_parity",
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
