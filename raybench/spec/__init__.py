"""A validated study: the models, and how they are loaded, overridden and shown."""

from raybench.spec.knobs import Knobs, KnobValue, Setting
from raybench.spec.study import (
    CostSpec,
    MeasureSpec,
    Objective,
    OptimizerSpec,
    Placement,
    ResourcesSpec,
    ScalingSpec,
    SearchSpec,
    Study,
)
from raybench.spec.training import TrainingSpec
from raybench.spec.workloads import FactorySpec, MLPSpec, VisionSpec, WorkloadSpec

__all__ = [
    "CostSpec",
    "FactorySpec",
    "KnobValue",
    "Knobs",
    "MLPSpec",
    "MeasureSpec",
    "Objective",
    "OptimizerSpec",
    "Placement",
    "ResourcesSpec",
    "ScalingSpec",
    "SearchSpec",
    "Setting",
    "Study",
    "TrainingSpec",
    "VisionSpec",
    "WorkloadSpec",
]
