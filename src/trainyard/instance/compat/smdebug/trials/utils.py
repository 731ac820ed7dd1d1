"""An import path of smdebug."""

from .trial import create_trial

__all__ = ["create_trial"]
