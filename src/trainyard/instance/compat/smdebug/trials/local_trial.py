"""An import path of smdebug."""

from .trial import LocalTrial

__all__ = ["LocalTrial"]
