"""The options of the command line, and the objects they stand for."""

from aisle.runs.options.evaluate import EvaluateConfig, SamplerOptions
from aisle.runs.options.groups import (
    DataOptions,
    LikelihoodName,
    MethodName,
    MethodOptions,
    ModelOptions,
    OptimizerOptions,
    RunOptions,
)
from aisle.runs.options.train import GROUPS, TrainConfig

__all__ = [
    "GROUPS",
    "DataOptions",
    "EvaluateConfig",
    "LikelihoodName",
    "MethodName",
    "MethodOptions",
    "ModelOptions",
    "OptimizerOptions",
    "RunOptions",
    "SamplerOptions",
    "TrainConfig",
]
