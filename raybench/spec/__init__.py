"""A validated study: the models, and how they are loaded, overridden and shown."""

from raybench.spec.knobs import Knobs, Setting
from raybench.spec.study import MeasureSpec, OptimizerSpec, Study, TrainingSpec
from raybench.spec.workloads import MLPSpec

__all__ = ["Knobs", "MLPSpec", "MeasureSpec", "OptimizerSpec", "Setting", "Study", "TrainingSpec"]
