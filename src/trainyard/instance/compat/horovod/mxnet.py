"""Says that the stand-in has no part for this framework."""

from . import absent

raise absent("mxnet")
