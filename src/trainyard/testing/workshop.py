"""A workshop for tests, in which agents are played and no process is started."""

from collections.abc import Callable, Sequence
from pathlib import Path

from trainyard.engines.catalog import Catalog
from trainyard.engines.choosing import EngineRules
from trainyard.engines.contract import Engine
from trainyard.engines.file_systems import FileSystems
from trainyard.engines.images import Images
from trainyard.engines.several import Engines
from trainyard.server.services.contract import Workshop
from trainyard.testing.engines.simulated import SimulatedEngine


def simulated_workshop(
    folder: Path,
    *,
    engine: Engine | None = None,
    more: Sequence[Engine] = (),
    wake: Callable[[str], None] = lambda _: None,
) -> Workshop:
    """Over a folder like a home: its `jobs`, and what it says of engines, types, images and file systems.

    The first engine is `engine`, by default a simulated one; `more` come after it.
    """
    return Workshop(
        jobs=folder / "jobs",
        engines=Engines([engine or SimulatedEngine(folder / "jobs"), *more]),
        engine_rules=EngineRules(folder / "engines.toml"),
        catalog=Catalog.read(folder / "catalog.toml"),
        images=Images(folder / "images.toml"),
        file_systems=FileSystems(folder / "file_systems.toml"),
        wake=wake,
    )
