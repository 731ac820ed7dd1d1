"""Fetches what the hook and the rules need from the object store.

These are the files of custom rules, the tensors of the runs that rules compare this one with, and the manifests of the
attempt before. All of it goes beside the code of the program, which may see it.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.sync.restore import key_to_path
from trainyard.instance.agent.program.code import stored_file
from trainyard.link.contract import DebuggerSpec, InstanceSpec, RuleSpec
from trainyard.link.event_protocol import RESUMED
from trainyard.objects.contract import ObjectAccess

# The parameter of a rule that names other runs, separated by commas.
OTHER_RUNS = "other_trials"

_RULES_FOLDER = ".trainyard/rules"
_RUNS_FOLDER = ".trainyard/runs"
# What is fetched of another run besides its manifests: no raw values.
_COMPARED = ("steps/", "ended.json")
# Must equal the name in formats/tensors/recordings/layout.py, which would import numpy.
_MANIFEST = ".manifest.json"
_MAX_MANIFEST_BYTES = 1 << 20
_PAGE = 1000


def fetch_rule_files(
    store: ObjectAccess, spec: InstanceSpec, ml: Path, *, check: Callable[[], None]
) -> Mapping[str, str]:
    """Fetch the files of custom rules. Return the reason for each rule whose file does not exist."""
    missing = {}
    for rule in spec.debugger.rules if spec.debugger else ():
        if not rule.source:
            continue
        try:
            where = parse_s3_uri(rule.source, spec.account)
            with stored_file(store, where, ml, check=check) as file:
                _copy_to(file, ml, _rule_path(spec, rule))
        except NotFound as error:
            missing[rule.name] = f"Its file {rule.source} cannot be fetched: {error.message}"
    return missing


def fetch_other_runs(store: ObjectAccess, spec: InstanceSpec, ml: Path, *, check: Callable[[], None]) -> None:
    """Fetch the step records of the other runs that rules name. A run that does not exist is skipped."""
    for uri, folder in _runs(spec).items():
        with ConfinedFolder.open(ml) as opened:
            opened.make_folder(folder).close()
        where = parse_s3_uri(uri, spec.account)
        prefix = f"{where.key.rstrip('/')}/"
        for key in _keys(store, Location(where.bucket, prefix)):
            path = key_to_path(key.removeprefix(prefix))
            if path is None or not (str(path).startswith(_COMPARED) or path.name.endswith(_MANIFEST)):
                continue
            with suppress(NotFound), stored_file(store, Location(where.bucket, key), ml, check=check) as file:
                _copy_to(file, ml, f"{folder}/{path}")


def other_runs(spec: InstanceSpec, *, seen_as: str) -> Mapping[str, str]:
    """The folders of the other runs, by the URIs in the rules' parameters."""
    return {uri: f"{seen_as}/{folder}" for uri, folder in _runs(spec).items()}


def rule_file(spec: InstanceSpec, rule: RuleSpec, *, seen_as: str) -> str:
    """The path of a rule's file for programs that see the ml folder as `seen_as`."""
    return f"{seen_as}/{_rule_path(spec, rule)}"


def fetch_manifests(store: ObjectAccess, context: InstanceContext, debugger: DebuggerSpec) -> None:
    """Put the manifests of the attempt before where the hook looks for them. Does nothing in a first attempt."""
    if context.spec.attempt == 1:
        return
    try:
        manifests = _read_manifests(store, parse_s3_uri(debugger.tensors.uri, context.spec.account))
        if manifests:
            with ConfinedFolder.open(context.folder.ml) as ml:
                ml.replace_file(RESUMED, json.dumps(manifests).encode())
    except (TrainyardError, OSError, ValueError) as error:
        context.reports.note(f"Steps are counted from 0 again, because the earlier count cannot be read: {error}")


def _rule_path(spec: InstanceSpec, rule: RuleSpec) -> str:
    assert spec.debugger is not None, "only a debugger has rules"
    # By number, because the name of a rule need not be a valid file name.
    number = [each.name for each in spec.debugger.rules].index(rule.name)
    return f"{_RULES_FOLDER}/{number}/rule.py"


def _runs(spec: InstanceSpec) -> Mapping[str, str]:
    rules = spec.debugger.rules if spec.debugger else ()
    named = [uri for rule in rules for uri in rule.parameters.get(OTHER_RUNS, "").split(",") if uri.strip()]
    return {uri: f"{_RUNS_FOLDER}/{number}" for number, uri in enumerate(dict.fromkeys(named))}


def _copy_to(file: BinaryIO, ml: Path, path: str) -> None:
    parent, _, name = path.rpartition("/")
    with (
        ConfinedFolder.open(ml) as opened,
        opened.make_folder(parent) as folder,
        os.fdopen(folder.create_file(name), "wb") as copy,
    ):
        shutil.copyfileobj(file, copy)


def _keys(store: ObjectAccess, location: Location) -> Iterator[str]:
    after: str | None = ""
    while after is not None:
        page = store.list_objects(location.bucket, prefix=location.key, after=after, limit=_PAGE)
        yield from (each.key for each in page.objects if not each.key.endswith("/"))
        after = page.next_after


def _read_manifests(store: ObjectAccess, where: Location) -> dict[str, Any]:
    """Read the manifests by the names of their workers. They lie beside folders with possibly very many files."""
    prefix, manifests, after = f"{where.key.rstrip('/')}/", {}, ""
    while True:
        page = store.list_objects(where.bucket, prefix=f"{prefix}worker_", after=after)
        for each in page.objects:
            worker, _, rest = each.key.removeprefix(prefix).partition(".")
            if f".{rest}" == _MANIFEST:
                with store.open(Location(where.bucket, each.key)) as reader:
                    manifests[worker] = json.loads(reader.read(0, min(each.size, _MAX_MANIFEST_BYTES)))
        if page.next_after is None:
            return manifests
        after = page.next_after
