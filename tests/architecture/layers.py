"""Who may import whom, as tables. `docs/architecture.md` draws the same picture."""

from pathlib import Path

from tests.architecture.imports import Import, imports, is_third_party

SOURCE = Path(__file__).resolve().parents[2] / "src" / "trainyard"

SDK = "sdk"  # the modules that lie directly under trainyard/
VERSION = "trainyard.__version__"  # which everyone may know

# A part may import itself and these parts. A more specific entry, such as "instance.compat", wins over its parent.
PARTS: dict[str, set[str]] = {
    "foundation": set(),
    "wire": {"foundation"},
    "objects": {"foundation"},
    "link": {"foundation"},
    "formats": {"foundation"},
    "insight": {"formats", "foundation"},
    "engines": {"objects", "link", "formats", "foundation"},
    "instance": {"insight", "objects", "link", "formats", "foundation"},
    "instance.compat": {SDK, "instance", "insight", "objects", "link", "formats", "foundation"},
    "instance.hook": {"link", "formats", "foundation"},  # which meets the rules in formats alone
    SDK: {"wire", "objects", "insight", "formats", "foundation"},
    "amazon": {SDK},  # the SDK's names at the paths of the sagemaker SDK
    "parameter_server": {"instance.parameter_server"},  # the public name for scripts of what lives there
    "hook": {"instance.hook", "formats"},  # another
    "drilling": {SDK, "wire", "formats", "foundation"},
    "cli": {SDK, "drilling", "engines.probe", "wire", "foundation"},
    "server": {"engines", "insight", "wire", "objects", "link", "formats", "foundation"},
    "server.control": {"server", "engines", "insight", "objects", "link", "formats", "foundation"},
    # Suites and fixtures for tests may reach anywhere; nothing may reach them.
    "testing": {SDK, "server", "engines", "instance", "insight", "wire", "objects", "link", "formats", "foundation"},
}

# Each third-party package, and the only places that may import it.
SEAMS: dict[str, set[str]] = {
    "botocore": {"wire"},
    "regex": {"wire", "formats.patterns"},
    "re2": {"formats.patterns"},
    "cbor2": {"wire"},
    "sqlalchemy": {"server.records"},
    "alembic": {"server.records"},
    "psycopg": {"server.records"},
    "obstore": {"objects"},
    "awscrt": {"objects.checksums", "formats.crc32c"},
    "uvicorn": {"server.listeners", "server.connections"},
    "httptools": {"server.connections"},
    "cryptography": {"server.certificates"},
    "click": {"cli"},
    "scipy": {"insight.tuning"},
    "ray": {"engines.ray"},
    "torch": {"instance", "data", "drilling.tensors"},
    "triton": {"instance.hook.statistics"},  # which comes with torch where there is a GPU
    "numpy": {"formats.tensors", "insight", "instance", "testing", "trial", "tuning_charts", "drilling.tensors"},
    "pyarrow": {"formats.tensors.tabulation"},
    "polars": {"formats.tensors.tabulation"},
    "pandas": {"analytics"},
    "bokeh": {"tuning_charts"},
    "tensorflow": {"instance.compat"},
    "jax": {"instance.hook.jax"},
    "keras": {"instance.hook.keras"},
    "xgboost": {"instance.hook.xgboost", "instance.compat.smdebug.xgboost"},
    "sagemaker_tensorflow": {"instance.compat"},  # the stand-in itself
    "trainyard_deferral": {"instance.compat"},  # ours, imported by that name
    "trainyard_ranks": {"instance.compat"},  # ours too
    "trainyard_connection": {"instance.compat"},  # and this
    "uv": set(),  # a program that instance/agent/installation.py runs
}

# Tools of the tests themselves, for the suites and fixtures that are shipped.
TESTING_PACKAGES = {"boto3", "botocore", "hypothesis", "pytest", "psycopg", "sklearn", "sqlalchemy", "torch", "xgboost"}


def violations(root: Path = SOURCE) -> list[str]:
    """Every import that breaks a rule, with the rule."""
    found = imports(root)
    broken = [line for each in found if (line := _broken_layer(each, root))]
    return broken + [line for each in found if (line := _broken_seam(each, root))]


def part_of(module: str) -> str:
    """The part a module belongs to, such as "wire"; the SDK's modules are one part."""
    inside = module.partition(".")[2]
    if not inside or (inside not in PARTS and "." not in inside):
        return SDK
    return inside


def _broken_layer(found: Import, root: Path) -> str | None:
    if found.target.partition(".")[0] != root.name or found.target == VERSION:
        return None
    source, target = part_of(found.source), part_of(found.target)
    own = _most_specific(source)
    if target == own or target.startswith(f"{own}.") or _any_covers(PARTS[own], target):
        return None
    return f"{found}, but {own} may import only {', '.join(sorted(PARTS[own])) or 'nothing of ours'}"


def _most_specific(part: str) -> str:
    fitting = [name for name in PARTS if part == name or part.startswith(f"{name}.")]
    assert fitting, f"{part} is no part of the package; give it a place in the tables of layers.py"
    return max(fitting, key=len)


def _any_covers(allowed: set[str], part: str) -> bool:
    return any(part == name or part.startswith(f"{name}.") for name in allowed)


def _broken_seam(found: Import, root: Path) -> str | None:
    if not is_third_party(found.target, root):
        return None
    package, inside = found.target.partition(".")[0], found.source.partition(".")[2]
    if _any_covers({"testing"}, inside) and package in TESTING_PACKAGES:
        return None
    if package not in SEAMS:
        return f"{found}, a package that has no seam"
    if _any_covers(SEAMS[package], inside):
        return None
    return f"{found}, but only {', '.join(sorted(SEAMS[package]))} may import {package}"
