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
from raybench.spec.workloads import CausalLMSpec, FactorySpec, MLPSpec, TextSpec, VisionSpec, WorkloadSpec

__all__ = [
    "CausalLMSpec",
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
    "TextSpec",
    "TrainingSpec",
    "VisionSpec",
    "WorkloadSpec",
]
