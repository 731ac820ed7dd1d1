"""Fingerprints of the modules that decide a result, to see whether they have changed."""

import ast
import contextlib
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "trainyard.insight.tuning"


@cache
def fingerprint(module: str) -> str:
    """Return a digest of a module and its imports from our tuning package, without comments, layout and docstrings."""
    digest = hashlib.sha256()
    for name, source in sorted(_reachable_sources(module).items()):
        digest.update(f"{name}\n{meaning(source)}\n".encode())
    return digest.hexdigest()[:12]


def meaning(source: str) -> str:
    """Return a dump of the syntax tree of a program, without comments, layout and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _reachable_sources(module: str) -> dict[str, str]:
    """Return the sources of a module and of its transitive imports, whatever else this process has imported."""
    sources: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _file(name) if name.startswith(PACKAGE) and name not in sources else None
        if file is not None:
            sources[name] = file.read_text()
            waiting += [*_imported_modules(sources[name]), name.rpartition(".")[0]]
    return sources


def _file(name: str) -> Path | None:
    """Return the file of a module, or None if the name is something inside a module."""
    with contextlib.suppress(ModuleNotFoundError):
        spec = find_spec(name)
        return Path(spec.origin) if spec is not None and spec.origin is not None else None
    return None


def _imported_modules(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
