"""What a path that a user gives has to be, whatever it is for."""

from trainyard.foundation.errors import InvalidRequest

_NAME_BYTES = 255  # what file systems take for one name
_PATH_BYTES = 1024
_SHOWN = 100


def require_path(given: str, member: str) -> None:
    """InvalidRequest when no file can have the path, or it leads upwards."""
    if not given.isprintable():
        raise InvalidRequest(f"{member} is {given[:_SHOWN]!r}; a path must have only characters that can be printed.")
    if ".." in given.split("/"):
        raise InvalidRequest(f'{member} is "{given[:_SHOWN]}"; a path must have no ".." in it.')
    longest = max(len(name.encode()) for name in given.split("/"))
    if longest > _NAME_BYTES or len(given.encode()) > _PATH_BYTES:
        raise InvalidRequest(
            f'{member} is "{given[:_SHOWN]}…"; a path must have at most {_PATH_BYTES} bytes, and each name in it at '
            f"most {_NAME_BYTES}."
        )
