"""One small protocol between orchestration and measurement."""

from raybench.launch.runner import GroupInfo, Outcome, Progress, Resources, TrialRunner

__all__ = ["GroupInfo", "Outcome", "Progress", "Resources", "TrialRunner"]
