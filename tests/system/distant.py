"""An engine that the yard treats as remote, so that its agents have no access to the yard's own store."""

from pathlib import Path

from trainyard.engines.local import LocalEngine


class DistantEngine(LocalEngine):
    name = "distant"
    is_here = False


def open_engine(jobs: Path, agents: Path) -> DistantEngine:
    """Open the engine, as the setting `engines` names it."""
    return DistantEngine(jobs, agents, slots=4)
