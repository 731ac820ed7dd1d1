"""Find what belongs to a script in its folder: the modules that it imports, and its requirements."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

REQUIREMENTS = "requirements.txt"

# A line of a requirements file that includes another one, or names a file.
_INCLUDED = re.compile(r"\s*(?:-r|--requirement|-c|--constraint)[\s=]\s*(?P<file>[^\s#]+)|\s*(?P<wheel>\./[^\s;#]+)")
# A folder with this file is a virtual environment.
_ENVIRONMENT_FILE = "pyvenv.cfg"


@dataclass(frozen=True, slots=True)
class LocalCode:
    """Files that a script needs, as paths relative to `folder`, sorted."""

    folder: Path
    modules: Sequence[PurePosixPath] = ()
    requirements: Sequence[PurePosixPath] = ()

    @property
    def files(self) -> list[PurePosixPath]:
        return [*self.requirements, *self.modules]


def find_local_code(script: Path) -> LocalCode:
    """Return the requirements beside a Python script, and the modules beside it that it imports.

    Imports are followed through the modules, without running any code. Of a package, all its Python files are returned,
    because packages often import their modules by computed names; of a folder without `__init__.py`, only the imported
    files are.
    """
    folder = script.parent
    if script.suffix != ".py" or not script.is_file():
        return LocalCode(folder)
    found: set[PurePosixPath] = set()
    waiting = [PurePosixPath(script.name)]
    while waiting:
        file = waiting.pop()
        for imported in _imported_names(folder / file, _package_of(file)):
            new = set(_module_files(folder, imported)) - found
            found |= new
            waiting += sorted(new)
    modules = sorted(found - {PurePosixPath(script.name)})
    return LocalCode(folder, modules, sorted(_requirement_files(folder, PurePosixPath(REQUIREMENTS), known=set())))


def _package_of(file: PurePosixPath) -> tuple[str, ...]:
    return file.parent.parts


def _imported_names(file: Path, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the names that a file imports, such as ("nets", "layers"); nothing if it is not valid Python."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _names_of_import_from(node, package)
        elif isinstance(node, ast.Call) and (name := _imported_by_call(node)):
            yield tuple(name.split("."))


def _names_of_import_from(node: ast.ImportFrom, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if node.level > len(package) + 1:
        return
    start = package[: len(package) - node.level + 1] if node.level else ()
    origin = (*start, *(node.module.split(".") if node.module else ()))
    if origin:
        yield origin
    # What is imported from a package can be one of its modules.
    yield from ((*origin, alias.name) for alias in node.names if alias.name != "*")


def _imported_by_call(node: ast.Call) -> str:
    """Return the name in `importlib.import_module("name")` or `__import__("name")`; empty for any other call."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called not in ("import_module", "__import__") or not node.args or not isinstance(node.args[0], ast.Constant):
        return ""
    name = node.args[0].value
    return name if isinstance(name, str) and all(part.isidentifier() for part in name.split(".")) else ""


def _module_files(folder: Path, name: tuple[str, ...]) -> Iterator[PurePosixPath]:
    """Yield the files in a folder that an imported name needs, as Python would find them."""
    place = PurePosixPath()
    for part in name:
        if (folder / place / part / "__init__.py").is_file():
            # This includes everything that the rest of the name could mean.
            yield from _python_files(folder, place / part)
            return
        module = place / f"{part}.py"
        if (folder / module).is_file():
            yield module
            return
        place /= part
        if not (folder / place).is_dir():
            return


def _python_files(folder: Path, package: PurePosixPath) -> Iterator[PurePosixPath]:
    """Yield the Python files of a package, without hidden folders, virtual environments and linked folders."""
    for entry in sorted((folder / package).iterdir()):
        inside = package / entry.name
        if entry.is_dir():
            if not entry.name.startswith(".") and not entry.is_symlink() and not (entry / _ENVIRONMENT_FILE).exists():
                yield from _python_files(folder, inside)
        elif entry.suffix == ".py" and entry.is_file():
            yield inside


def _requirement_files(folder: Path, file: PurePosixPath, *, known: set[PurePosixPath]) -> Iterator[PurePosixPath]:
    """Yield a requirements file, the lists that it includes, and the files that it names, if they are in the folder."""
    if file in known or file.is_absolute() or ".." in file.parts or not (folder / file).is_file():
        return
    known.add(file)
    yield file
    if file.suffix in (".whl", ".gz", ".zip"):
        return
    for line in (folder / file).read_text(errors="replace").splitlines():
        if match := _INCLUDED.match(line):
            # pip reads lists relative to the list that includes them, and other files relative to its own folder.
            named = file.parent / match["file"] if match["file"] else PurePosixPath(match["wheel"])
            yield from _requirement_files(folder, named, known=known)
