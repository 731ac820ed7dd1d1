"""The paths of a machine that no job may see."""

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

# Lower uids are those of services, whose homes may be system folders.
_FIRST_USER_UID = 1000
_HOMES = (Path("/home"), Path("/root"))
_SYSTEM_FOLDERS = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/etc", "/opt", "/var", "/dev", "/proc", "/sys")))


def hidden_paths(yard: Path) -> tuple[Path, ...]:
    """Return the yard's own folder and all home folders."""
    people = [Path(user.pw_dir) for user in pwd.getpwall() if user.pw_uid >= _FIRST_USER_UID]
    own = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where the user has none
    return outermost((yard, *_HOMES, own, *people))


def outermost(places: Iterable[Path]) -> tuple[Path, ...]:
    """Return the paths that are below none of the others, without those that contain system folders."""
    found: dict[Path, None] = {}
    for place in sorted(set(places)):
        is_private = place.is_absolute() and not any(folder.is_relative_to(place) for folder in _SYSTEM_FOLDERS)
        if is_private and not any(place.is_relative_to(other) for other in found):
            found[place] = None
    return tuple(found)
