"""The optional parts of Trainyard: which package each needs, and the command that installs it.

`pip install trainyard` brings what every yard needs. A part that only some use is an extra of the distribution. If it
is used without its package, the error names the command. Standard library only.
"""

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of the distribution: the modules that it installs, by the names that are imported, and what needs it."""

    modules: tuple[str, ...]
    purpose: str


EXTRAS: Mapping[str, Extra] = {
    "tuning": Extra(("scipy", "numpy"), "Hyperparameter tuning"),
    "debugger": Extra(("numpy",), "The debugger"),
    "profiler": Extra(("msgspec", "numpy"), "The profiler"),
    "s3": Extra(("obstore",), "An object store on another S3"),
    "ray": Extra(("ray",), "The engine ray"),
    "postgres": Extra(("psycopg",), "A database on PostgreSQL"),
    "pandas": Extra(("pandas",), "A dataframe of metrics"),
    "plots": Extra(("bokeh", "contourpy", "scipy"), "A chart"),
    "arrow": Extra(("pyarrow", "numpy"), "A table of tensors"),
    "polars": Extra(("polars", "pyarrow", "numpy"), "A polars dataframe of tensors"),
}

# Where the server lacks an extra, for the callers of its API.
YARD_PYTHON = "the Python of the yard"


class MissingExtra(InvalidRequest, ImportError):
    """The package of an extra is not installed; the message has the command that installs it."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'trainyard[{extra}]'"


def missing_module(extra: str) -> str | None:
    """Return the first module of an extra that is not installed; None if all are. Imports nothing."""
    return next((module for module in EXTRAS[extra].modules if not _is_installed(module)), None)


def require_extra(extra: str, *, where: str = "") -> None:
    """Raise MissingExtra if a module of an extra is not installed. `where` says whose Python lacks it."""
    module = missing_module(extra)
    if module is not None:
        raise missing_extra(extra, module, where=where)


def missing_extra(extra: str, module: str, *, where: str = "") -> MissingExtra:
    """Return the error for an extra without one of its modules."""
    place = f" in {where}" if where else ""
    return MissingExtra(
        f"{EXTRAS[extra].purpose} needs {module}, which is not installed{place}: {install_command(extra)}"
    )


def extra_of(error: ModuleNotFoundError) -> MissingExtra | None:
    """Return the error that names the extra for a failed import; None if no extra has the module."""
    module = (error.name or "").partition(".")[0]
    found = sorted((len(extra.modules), name) for name, extra in EXTRAS.items() if module in extra.modules)
    return missing_extra(found[0][1], module) if found else None


def _is_installed(module: str) -> bool:
    # A program may have set a module to None, which makes its import fail.
    if module in sys.modules:
        return sys.modules[module] is not None
    return importlib.util.find_spec(module) is not None
