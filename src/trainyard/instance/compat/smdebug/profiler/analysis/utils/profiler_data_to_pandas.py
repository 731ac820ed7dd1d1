"""An import path of smdebug."""

from trainyard._sdk.profiling.frames import PandasFrame

__all__ = ["PandasFrame"]
