"""Stands in for those packages of this name that the environment does not have: each below it is one of its own."""

from pathlib import Path

from trainyard_deferral import real_package

_real = real_package(__name__, str(Path(__file__).parents[1]))
if _real is not None:
    _real.__path__.append(str(Path(__file__).parent))  # behind the real ones
