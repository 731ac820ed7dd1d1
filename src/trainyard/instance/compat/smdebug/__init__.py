"""Replaces smdebug in environments that have no working one: hooks, trials, rules."""

from pathlib import Path

from trainyard_deferral import working_package

if working_package(__name__, str(Path(__file__).parents[1])) is None:
    from .names import *  # noqa: F403
