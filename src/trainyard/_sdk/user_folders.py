"""Where clients keep files of their user: the configuration, and what can be made again."""

from collections.abc import Mapping
from pathlib import Path


def config_folder(environment: Mapping[str, str]) -> Path:
    """Return the configuration folder of Trainyard clients."""
    return _folder(environment, ("XDG_CONFIG_HOME", "APPDATA"), ".config")


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the cache folder of Trainyard clients."""
    return _folder(environment, ("XDG_CACHE_HOME", "LOCALAPPDATA"), ".cache")


def _folder(environment: Mapping[str, str], variables: tuple[str, ...], default: str) -> Path:
    """Return the first absolute path in some variables, else the default one in the home of the user."""
    for name in variables:
        configured = Path(environment.get(name, ""))
        if configured.is_absolute():
            return configured / "trainyard"
    home = environment.get("HOME")
    return (Path(home) if home else Path.home()) / default / "trainyard"
