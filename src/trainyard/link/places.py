"""Where on the machine of an instance the paths lie that its program writes."""

from collections.abc import Mapping
from pathlib import Path

from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder

_ML = "/opt/ml"  # instance/sandbox/contract.py says so too, which the yard's side may not know


def place_of(folder: InstanceFolder, spec: InstanceSpec, path: str) -> tuple[Path, str]:
    """Where a path that the program writes lies: a folder that it cannot replace, and the path below that."""
    inside = path.removeprefix(f"{_ML}/")
    if inside != path:
        return folder.ml, inside
    above, place = next(
        each for each in extra_folders(folder, spec).items() if path == each[0] or path.startswith(f"{each[0]}/")
    )
    return place.parent, f"{place.name}{path.removeprefix(above)}"


def extra_folders(folder: InstanceFolder, spec: InstanceSpec) -> Mapping[str, Path]:
    """Paths outside /opt/ml that the job may write, such as /state, and the folders behind them."""
    return {path: folder.scratch / "extra" / str(number) for number, path in enumerate(spec.extra_paths)}
