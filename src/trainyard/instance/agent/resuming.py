"""What the hook needs to know when its training was interrupted and goes on: how far it had come."""

import json
from typing import Any

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.reports import Reports
from trainyard.link.contract import DebuggerSpec, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.told import RESUMED
from trainyard.objects.contract import ObjectAccess

_MANIFEST = ".manifest.json"  # formats/tensors/layout.py says so too, which takes numpy
_MANIFEST_BYTES = 1 << 20


def leave_reached(
    folder: InstanceFolder, spec: InstanceSpec, debugger: DebuggerSpec, *, store: ObjectAccess, reports: Reports
) -> None:
    """Leave the manifests of the attempt before where the hook looks for them; nothing in a first attempt."""
    if spec.attempt == 1:
        return
    try:
        manifests = _manifests(store, parse_s3_uri(debugger.tensors.uri, spec.account))
        if manifests:
            with ConfinedFolder.open(folder.ml) as ml:
                ml.replace_file(RESUMED, json.dumps(manifests).encode())
    except (TrainyardError, OSError, ValueError) as error:
        reports.note(f"Steps are counted from 0 again, since how many there were before cannot be read: {error}")


def _manifests(store: ObjectAccess, where: Location) -> dict[str, Any]:
    """By the worker's name. They lie beside folders of files, of which there may be very many."""
    prefix, found, after = f"{where.key.rstrip('/')}/", {}, ""
    while True:
        page = store.list_objects(where.bucket, prefix=f"{prefix}worker_", after=after)
        for each in page.objects:
            worker, _, rest = each.key.removeprefix(prefix).partition(".")
            if f".{rest}" == _MANIFEST:
                with store.open(Location(where.bucket, each.key)) as reader:
                    found[worker] = json.loads(reader.read(0, min(each.size, _MANIFEST_BYTES)))
        if page.next_after is None:
            return found
        after = page.next_after
