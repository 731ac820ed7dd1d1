"""An import path of smdebug."""

from trainyard._sdk.profiling.python_profiles import (
    Metrics,
    PyinstrumentStepStats,
    StepPhase,
    StepPythonProfileStats,
    cProfileFunctionStats,
    cProfileStats,
)

__all__ = [
    "Metrics",
    "PyinstrumentStepStats",
    "StepPhase",
    "StepPythonProfileStats",
    "cProfileFunctionStats",
    "cProfileStats",
]
