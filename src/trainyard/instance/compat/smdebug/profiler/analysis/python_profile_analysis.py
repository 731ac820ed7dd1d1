"""An import path of smdebug."""

from trainyard._sdk.profiling.python_profiles import PyinstrumentAnalysis, PythonProfileAnalysis, cProfileAnalysis

__all__ = ["PyinstrumentAnalysis", "PythonProfileAnalysis", "cProfileAnalysis"]
