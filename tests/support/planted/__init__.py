"""Hardware and learning with known truths, and a runner that measures them without a process."""

from tests.support.planted.hardware import CostModel, FakeHardware, StepCosts, truth
from tests.support.planted.learning import FakeLearning
from tests.support.planted.noise import QUIET, Noise
from tests.support.planted.runner import STARTED_AT, FailureModel, FakeRunner, run_all, to_record
from tests.support.planted.simulated_collectives import FakeLink

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
