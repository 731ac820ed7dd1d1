"""The folders and configuration files of an instance, as the program will find them under /opt/ml."""

import json
import os
from pathlib import Path

from trainyard.instance.agent.configuration import config_files
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.places import extra_folders
from trainyard.link.told import SOCKET

_FOLDERS = (
    "code",
    "checkpoints",
    "input/config",
    "input/data",
    "model",
    "output/data",
    "output/intermediate",
    "output/metrics/sagemaker",
)
_DEBUGGER_FOLDERS = (SOCKET.rpartition("/")[0],)


class Owner:
    """Who shall own what the program may write: the job's user where the yard runs as root, else the yard's own."""

    def __init__(self, uid: int | None) -> None:
        self._uid = uid if os.geteuid() == 0 else None

    @property
    def is_another(self) -> bool:
        """Whether the program runs as somebody who does not own the stored objects."""
        return self._uid is not None and self._uid != os.geteuid()

    def take(self, path: Path) -> None:
        """Give a file, folder or link away; a link itself, never what it points to."""
        if self._uid is not None:
            os.chown(path, self._uid, self._uid, follow_symlinks=False)

    def take_tree(self, folder: Path) -> None:
        """Give away a folder and everything in it."""
        if self._uid is None:
            return
        self.take(folder)
        for parent, folders, files in os.walk(folder):
            for name in (*folders, *files):
                self.take(Path(parent, name))


def lay_out(folder: InstanceFolder, spec: InstanceSpec, owner: Owner) -> None:
    """Make /opt/ml with its configuration files, and the places outside it that the job may write."""
    folder.ml.mkdir(exist_ok=True)
    folder.scratch.mkdir(exist_ok=True)
    folder.launch.mkdir(exist_ok=True)
    owner.take(folder.launch)
    for name in (*_FOLDERS, *_DEBUGGER_FOLDERS) if spec.debugger else _FOLDERS:
        (folder.ml / name).mkdir(parents=True, exist_ok=True)
    for name, values in config_files(spec).items():
        (folder.ml / "input/config" / name).write_text(json.dumps(values))
    owner.take_tree(folder.ml)
    for place in extra_folders(folder, spec).values():
        place.mkdir(parents=True, exist_ok=True)
        owner.take(place)
