"""An engine that a yard takes for one on other machines, so that its agents have nothing of the yard's own store."""

from pathlib import Path

from trainyard.engines.local import LocalEngine


class DistantEngine(LocalEngine):
    name = "distant"
    is_here = False


def open_engine(jobs: Path, agents: Path) -> DistantEngine:
    """As the setting `engines` asks for it."""
    return DistantEngine(jobs, agents, slots=4)
