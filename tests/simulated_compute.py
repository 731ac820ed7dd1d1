"""A `Compute` for tests, with simulated agents and no processes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import Engine
from trainyard.engines.engine_set import EngineSet
from trainyard.engines.file_systems import FileSystems
from trainyard.engines.images import Images
from trainyard.engines.selection import EngineRules
from trainyard.server.services.contract import Compute
from trainyard.testing.engines.simulated import SimulatedEngine


def simulated_compute(
    folder: Path,
    *,
    engine: Engine | None = None,
    more: Sequence[Engine] = (),
    wake: Callable[[str], None] = lambda _: None,
) -> Compute:
    """Return a `Compute` over a folder that looks like a home: `jobs`, and the files of engines, images and so on.

    The first engine is `engine`, by default a simulated one, followed by those in `more`.
    """
    return Compute(
        jobs=folder / "jobs",
        engines=EngineSet([engine or SimulatedEngine(folder / "jobs"), *more]),
        engine_rules=EngineRules(folder / "engines.toml"),
        catalog=Catalog.read(folder / "catalog.toml"),
        images=Images(folder / "images.toml"),
        file_systems=FileSystems(folder / "file_systems.toml"),
        wake=wake,
    )
