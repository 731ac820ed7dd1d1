"""Reads imports out of source files, without importing anything."""

import ast
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Import:
    """One import of `target` in the module `source`; `at_load` if it runs as soon as the module is imported."""

    source: str
    target: str
    line: int
    at_load: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


def modules(root: Path) -> dict[str, Path]:
    """Return every module below a package folder, by dotted name."""
    return {_module_name(path, root): path for path in sorted(root.rglob("*.py"))}


def _module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(root: Path) -> list[Import]:
    """Return every import below a package folder: at the top, in functions, and under TYPE_CHECKING.

    `from package import name` counts as an import of `package.name` where that is a module of the tree.
    """
    known = modules(root)
    return [found for name, path in known.items() for found in _imports_of(name, path, known)]


def _imports_of(name: str, path: Path, known: dict[str, Path]) -> Iterator[Import]:
    tree = ast.parse(path.read_bytes(), filename=str(path))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    deferred = _deferred_lines(tree)
    for node in ast.walk(tree):
        for target in _targets(node, package, known):
            assert isinstance(node, ast.Import | ast.ImportFrom)
            yield Import(name, target, node.lineno, at_load=node.lineno not in deferred)


def _targets(node: ast.AST, package: str, known: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _absolute(node, package)
        for alias in node.names:
            longer = f"{base}.{alias.name}"
            yield longer if longer in known or alias.name == "__version__" else base


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, node.module] if node.module else above)


def _deferred_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.If) and _defers(node):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _defers(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.If) -> bool:
    return not isinstance(node, ast.If) or "TYPE_CHECKING" in ast.unparse(node.test)


def is_third_party(target: str, root: Path) -> bool:
    top = target.partition(".")[0]
    return top != root.name and top not in sys.stdlib_module_names


def chains(start: str, targets: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Return a shortest chain of imports from a module to each module that it reaches, the nearest first."""
    before: dict[str, str] = {start: ""}
    waiting = deque([start])
    while waiting:
        name = waiting.popleft()
        for target in sorted(targets[name] - before.keys()):
            before[target] = name
            waiting.append(target)
            chain = [target]
            while before[chain[0]]:
                chain.insert(0, before[chain[0]])
            yield chain


def cycles(root: Path) -> list[list[str]]:
    """Return groups of modules that need each other to load."""
    edges: dict[str, set[str]] = {name: set() for name in modules(root)}
    for found in imports(root):
        if found.at_load and found.target in edges and found.target != found.source:
            edges[found.source].add(found.target)
    reach = {name: _reachable(name, edges) for name in edges}
    groups = {tuple(sorted(other for other in reach[name] if name in reach[other])) for name in edges}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def _reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    seen, waiting = set[str](), [start]
    while waiting:
        for target in edges[waiting.pop()] - seen:
            seen.add(target)
            waiting.append(target)
    return seen
