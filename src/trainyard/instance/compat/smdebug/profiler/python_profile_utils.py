"""An import path of smdebug."""

from trainyard._sdk.profiling.python_profiles import PythonProfileModes, StepPhase

__all__ = ["PythonProfileModes", "StepPhase"]
