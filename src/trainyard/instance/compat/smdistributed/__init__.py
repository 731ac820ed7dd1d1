"""Replaces those of smdistributed's packages that the environment does not have."""

from pathlib import Path

from trainyard_deferral import real_package

_real = real_package(__name__, str(Path(__file__).parents[1]))
if _real is not None:
    # The real packages come first.
    _real.__path__.append(str(Path(__file__).parent))
