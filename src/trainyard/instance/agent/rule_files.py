"""What rules need of the store: a user's own file, and the tensors of runs that they compare this one with.

All of it is brought beside the code of the program, which may see it.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.code import stored_file
from trainyard.instance.agent.syncing.restoring import file_path
from trainyard.link.contract import InstanceSpec, RuleSpec
from trainyard.objects.contract import ObjectAccess

OTHER_RUNS = "other_trials"  # the parameter of a rule that names other runs, with commas between them

_FOLDER = ".trainyard/rules"
_RUNS = ".trainyard/runs"
_COMPARED = ("steps/", "ended.json")  # what is brought of a run, besides its manifests: no raw values
_MANIFEST = ".manifest.json"
_PAGE = 1000


def fetch_rule_files(
    store: ObjectAccess, spec: InstanceSpec, ml: Path, *, check: Callable[[], None]
) -> Mapping[str, str]:
    """Bring the file of each rule that has one; why it cannot be had, by the names of the rules that lack theirs."""
    missing = {}
    for rule in spec.debugger.rules if spec.debugger else ():
        if not rule.source:
            continue
        try:
            where = parse_s3_uri(rule.source, spec.account)
            with stored_file(store, where, ml, check=check) as file:
                _keep(file, ml, _file_of(spec, rule))
        except NotFound as error:
            missing[rule.name] = f"Its file {rule.source} cannot be had: {error.message}"
    return missing


def fetch_other_runs(store: ObjectAccess, spec: InstanceSpec, ml: Path, *, check: Callable[[], None]) -> None:
    """Bring what was told of the steps of other runs; of a run that is not there nothing is brought."""
    for uri, folder in _runs(spec).items():
        with ConfinedFolder.open(ml) as opened:
            opened.make_folder(folder).close()
        where = parse_s3_uri(uri, spec.account)
        prefix = f"{where.key.rstrip('/')}/"
        for key in _keys(store, Location(where.bucket, prefix)):
            path = file_path(key.removeprefix(prefix))
            if path is None or not (str(path).startswith(_COMPARED) or path.name.endswith(_MANIFEST)):
                continue
            with suppress(NotFound), stored_file(store, Location(where.bucket, key), ml, check=check) as file:
                _keep(file, ml, f"{folder}/{path}")


def other_runs(spec: InstanceSpec, *, seen_as: str) -> Mapping[str, str]:
    """The folders in which the other runs lie, by what the rules call them."""
    return {uri: f"{seen_as}/{folder}" for uri, folder in _runs(spec).items()}


def rule_file(spec: InstanceSpec, rule: RuleSpec, *, seen_as: str) -> str:
    """Where the file of a rule lies for those who see the ml folder as `seen_as`."""
    return f"{seen_as}/{_file_of(spec, rule)}"


def _file_of(spec: InstanceSpec, rule: RuleSpec) -> str:
    assert spec.debugger is not None, "only a debugger has rules"
    number = [each.name for each in spec.debugger.rules].index(rule.name)  # names may be no names of files
    return f"{_FOLDER}/{number}/rule.py"


def _runs(spec: InstanceSpec) -> Mapping[str, str]:
    rules = spec.debugger.rules if spec.debugger else ()
    named = [uri for rule in rules for uri in rule.parameters.get(OTHER_RUNS, "").split(",") if uri.strip()]
    return {uri: f"{_RUNS}/{number}" for number, uri in enumerate(dict.fromkeys(named))}


def _keep(file: BinaryIO, ml: Path, path: str) -> None:
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
        yield from (found.key for found in page.objects if not found.key.endswith("/"))
        after = page.next_after
