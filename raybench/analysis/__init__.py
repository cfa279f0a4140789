"""From records to conclusions: pure functions, frozen values. Imports neither torch, ray nor pandas."""

from raybench.analysis.results import StudyResults, analyse
from raybench.analysis.summary import to_pandas

__all__ = ["StudyResults", "analyse", "to_pandas"]
