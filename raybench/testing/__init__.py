"""Hardware and learning with known truths, and a runner that measures them without a process."""

from raybench.testing.hardware import CostModel, FakeHardware, StepCosts, truth
from raybench.testing.learning import FakeLearning
from raybench.testing.noise import QUIET, Noise
from raybench.testing.runner import STARTED_AT, FailureModel, FakeRunner, run_all, to_record
from raybench.testing.simulated_collectives import FakeLink

__all__ = [
    "QUIET",
    "STARTED_AT",
    "CostModel",
    "FailureModel",
    "FakeHardware",
    "FakeLearning",
    "FakeLink",
    "FakeRunner",
    "Noise",
    "StepCosts",
    "run_all",
    "to_record",
    "truth",
]
