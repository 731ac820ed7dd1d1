"""Replaces smexperiments in environments that do not have it: experiments, trials, components and trackers."""

from pathlib import Path

from trainyard_deferral import real_package

# The interface is that of 0.1.45.
__version__ = "0.1.45+trainyard"

real_package(__name__, str(Path(__file__).parents[1]))
