"""What no job may see of a machine, wherever it lies."""

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

_PEOPLE_FROM = 1000  # uids below are those of services, whose homes may be folders of the system
_HOMES = (Path("/home"), Path("/root"))
_OF_THE_SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/etc", "/opt", "/var", "/dev", "/proc", "/sys")))


def hidden_places(yard: Path) -> tuple[Path, ...]:
    """The yard's own folder and the homes of all who have one here."""
    people = [Path(user.pw_dir) for user in pwd.getpwall() if user.pw_uid >= _PEOPLE_FROM]
    own = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where the user has none
    return outermost((yard, *_HOMES, own, *people))


def outermost(places: Iterable[Path]) -> tuple[Path, ...]:
    """Those that lie in none of the others; without such as hold the system, which nobody can do without."""
    found: dict[Path, None] = {}
    for place in sorted(set(places)):
        is_private = place.is_absolute() and not any(folder.is_relative_to(place) for folder in _OF_THE_SYSTEM)
        if is_private and not any(place.is_relative_to(other) for other in found):
            found[place] = None
    return tuple(found)
