"""Creates the folders and configuration files that the program finds under /opt/ml."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.program.configuration import config_files
from trainyard.instance.agent.program.platform_files import channel_manifests, has_checkpoint_folder
from trainyard.instance.agent.program.processing_files import processing_config_files
from trainyard.link.contract import InstanceSpec
from trainyard.link.event_protocol import SOCKET, STEP_TIMES
from trainyard.link.folders import InstanceFolder, extra_folders

_FOLDERS = (
    "code",
    "input/config",
    "input/data",
    "model",
    "output/data",
    "output/intermediate",
    "output/metrics/sagemaker",
)
_PROCESSING_FOLDERS = ("code", "config", "processing", "output/metrics/sagemaker")
_DEBUGGER_FOLDERS = (SOCKET.rpartition("/")[0],)


class ProgramUser:
    """The owner of the files that the program may write: the job's user if the yard runs as root, else the yard's.

    `uid` is None when ownership does not change.
    """

    def __init__(self, uid: int | None) -> None:
        self.uid = uid if os.geteuid() == 0 else None

    @property
    def owns_no_objects(self) -> bool:
        """Whether the program runs as a user who does not own the stored objects."""
        return self.uid is not None and self.uid != os.geteuid()

    def give_path(self, path: Path) -> None:
        """Change the owner of a path in a folder that no program writes to; of a link itself, not of its target."""
        if self.uid is not None:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def give_tree(self, folder: ConfinedFolder) -> None:
        """Change the owner of a folder and everything in it."""
        if self.uid is not None:
            folder.give(self.uid)


def create_layout(folder: InstanceFolder, spec: InstanceSpec, owner: ProgramUser) -> None:
    """Create /opt/ml with its configuration files, and the folders outside it that the job may write to."""
    with ConfinedFolder.open(folder.root) as root:
        root.make_folder(folder.scratch.name).close()
        root.make_folder(folder.launch.name, owner=owner.uid).close()
        with root.make_folder(folder.ml.name, owner=owner.uid) as ml:
            for name in _folders(spec):
                ml.make_folder(name, owner=owner.uid).close()
            files = config_files(spec) if spec.processing is None else processing_config_files(spec)
            with ml.open_folder("input/config" if spec.processing is None else "config") as config:
                for name, values in files.items():
                    config.replace_file(name, json.dumps(values).encode(), owner=owner.uid)
            if spec.processing is None:
                _write_manifests(ml, spec, owner)
        for path in extra_folders(folder, spec).values():
            with root.make_folder(str(path.parent.relative_to(folder.root))) as parent:
                parent.make_folder(path.name, owner=owner.uid).close()


def _write_manifests(ml: ConfinedFolder, spec: InstanceSpec, owner: ProgramUser) -> None:
    with ml.open_folder("input/data") as data:
        for name, manifest in channel_manifests(spec):
            data.replace_file(name, manifest, owner=owner.uid)


def _folders(spec: InstanceSpec) -> Iterator[str]:
    if spec.processing is not None:
        yield from _PROCESSING_FOLDERS
        return
    yield from _FOLDERS
    if has_checkpoint_folder(spec):
        yield "checkpoints"
    if spec.debugger:
        yield from _DEBUGGER_FOLDERS
    if spec.profiler:
        yield STEP_TIMES
