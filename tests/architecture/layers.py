"""Who may import whom, as tables. `docs/architecture.md` draws the same picture."""

from collections.abc import Sequence
from pathlib import Path

from tests.architecture.imports import Import, chains, imports, is_third_party, modules

SOURCE = Path(__file__).resolve().parents[2] / "src" / "trainyard"

SDK = "sdk"  # the modules that lie directly under trainyard/
PRIVATE_SDK = "_sdk"  # what those modules are made of
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
    "instance.compat": {SDK, PRIVATE_SDK, "instance", "insight", "objects", "link", "formats", "foundation"},
    "instance.hook": {"link", "formats", "foundation"},  # which meets the rules in formats alone
    SDK: {PRIVATE_SDK, "experiments", "wire", "objects", "insight", "formats", "foundation"},
    PRIVATE_SDK: {SDK, "wire", "objects", "insight", "formats", "foundation"},
    "experiments": {SDK, PRIVATE_SDK, "foundation"},  # of the SDK too, a folder because sagemaker has one
    "amazon": {SDK},  # the SDK's names at the paths of the sagemaker SDK
    "parameter_server": {"instance.parameter_server"},  # the public name for scripts of what lives there
    "hook": {"instance.hook", "formats", "foundation"},  # another
    "cli": {SDK, PRIVATE_SDK, "engines.probe", "engines.catalog", "wire", "foundation"},
    "server": {"engines", "insight", "wire", "objects", "link", "formats", "foundation"},
    "server.control": {
        *(
            "server.channel_contents",
            "server.experiments",
            "server.gateways",
            "server.identity",
            "server.jobs",
            "server.lineage",
            "server.log_streams",
        ),
        *("server.metric_series", "server.records.contract", "server.registry", "server.roles"),
        "server.source_contents",
        *("engines", "insight", "objects", "link", "formats", "foundation"),
    },
    # Scheduling serves every kind of job, so it knows none of them.
    "server.control.scheduling": {"server.jobs.queues", "server.records.contract", "engines", "foundation"},
    # Suites and fixtures for tests may reach anywhere; nothing may reach them.
    "testing": {SDK, "server", "engines", "instance", "insight", "wire", "objects", "link", "formats", "foundation"},
}

# What a part may reach through the parts that it imports, besides those that it may import itself.
REACHED: dict[str, set[str]] = {
    "instance.compat": {"wire"},
    "experiments": {"wire", "objects", "insight", "formats"},
    "amazon": {PRIVATE_SDK, "wire", "objects", "insight", "formats", "foundation"},
    "parameter_server": {"foundation"},
    "hook": {"link", "foundation"},
    "cli": {"engines", "objects", "link", "insight", "formats"},
    "server.control.scheduling": {"objects", "link", "formats"},
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
    # Run by the Python of a user, who has them.
    "boto3": {"cli.yard.sdk_trial"},
    "sagemaker": {"cli.yard.sdk_trial"},
    "obstore": {"objects"},
    "awscrt": {"objects.checksums", "formats.crc32c"},
    "uvicorn": {"server.http.listeners", "server.http.connections"},
    "httptools": {"server.http.connections"},
    "starlette": {"server.dashboard"},
    "jinja2": {"server.dashboard"},
    "markupsafe": {"server.dashboard"},  # which comes with Jinja2
    "cryptography": {"server.http.certificates", "objects.encryption.cipher"},
    "click": {"cli"},
    "rich": {"cli.terminal"},
    "scipy": {"insight.tuning"},
    "ray": {"engines.ray"},
    "torch": {"instance", "data", "_sdk.resume_drill.tensors"},
    "triton": {"instance.hook.statistics"},  # which comes with torch where there is a GPU
    "numpy": {
        "formats.tensors",
        "formats.profiles.hardware_reader",
        "formats.profiles.step_reader",
        "formats.profiles.traces",
        "insight",
        "instance",
        "testing",
        "trial",
        "_sdk.profiling.charts",
        "_sdk.tuning.charts",
        "_sdk.resume_drill.tensors",
    },
    "msgspec": {"formats.profiles.traces"},
    "pyarrow": {"formats.tensors.trials.statistics_table", "server.parquet_process"},
    "polars": {"formats.tensors.trials.statistics_table"},
    "pandas": {"analytics", "lineage", "_sdk.profiling.frames", "_sdk.profiling.frame_analysis"},
    "bokeh": {"_sdk.tuning.charts", "_sdk.training.metric_charts", "_sdk.profiling.charts"},
    "cloudpickle": {"_sdk.remote"},
    "tensorflow": {"instance.compat"},
    "jax": {"instance.hook.jax"},
    "keras": {"instance.hook.keras"},
    "xgboost": {
        "instance.hook.xgboost",
        "instance.hook.profiling.xgboost_timer",
        "instance.compat.smdebug.xgboost",
    },
    "sagemaker_tensorflow": {"instance.compat"},  # the stand-in itself
    "trainyard_deferral": {"instance.compat"},  # ours, imported by that name
    "trainyard_ranks": {"instance.compat"},  # ours too
    "trainyard_connection": {"instance.compat"},  # and this
    "pynvml": {"instance.agent.watch.hardware.nvml"},
    "nvidia-ml-py": set(),  # imported as pynvml
    "uv": set(),  # a program that instance/agent/program/installation.py runs
}

# Tools of the tests themselves, for the suites and fixtures that are shipped.
TESTING_PACKAGES = {"boto3", "botocore", "hypothesis", "pytest", "psycopg", "sklearn", "sqlalchemy", "torch", "xgboost"}


def violations(root: Path = SOURCE) -> list[str]:
    """Return every import that breaks a rule, with the rule."""
    found = imports(root)
    broken = [line for each in found if (line := _broken_layer(each, root))]
    broken += [line for each in found if (line := _broken_seam(each, root))]
    return broken + transitive_violations(found, root)


def transitive_violations(found: Sequence[Import], root: Path = SOURCE) -> list[str]:
    """Return every module that reaches, through others, a part that it may not, with a shortest chain of imports.

    There is one chain for each part that a module reaches.
    """
    known = modules(root)
    targets: dict[str, set[str]] = {name: set() for name in known}
    for each in found:
        # The package itself holds only the version, which everyone may know.
        if each.source in known and each.target in known and each.target != root.name:
            targets[each.source].add(each.target)
    broken = []
    for name in known:
        own = _most_specific(part_of(name))
        reached: dict[str, list[str]] = {}
        for chain in chains(name, targets):
            part = part_of(chain[-1])
            if len(chain) > 2 and not _may_reach(own, part):
                reached.setdefault(_most_specific(part), chain)
        broken += [
            f"{' -> '.join(chain)}, but {own} may not reach {part}, not even through others"
            for part, chain in reached.items()
        ]
    return broken


def part_of(module: str) -> str:
    """Return the part of a module, such as "wire". The modules of the SDK are one part."""
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


def _may_reach(own: str, target: str) -> bool:
    return _any_covers({own} | PARTS[own] | REACHED.get(own, set()), target)


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
