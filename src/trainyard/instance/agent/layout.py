"""The folders and configuration files of an instance, as the program will find them under /opt/ml."""

import json
import os
from pathlib import Path

from trainyard.foundation.confined import ConfinedFolder
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
        self.uid = uid if os.geteuid() == 0 else None  # None where nothing is given away

    @property
    def is_another(self) -> bool:
        """Whether the program runs as somebody who does not own the stored objects."""
        return self.uid is not None and self.uid != os.geteuid()

    def take(self, path: Path) -> None:
        """Give away something in a folder that no program writes to; a link itself, never what it points to."""
        if self.uid is not None:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def take_tree(self, folder: ConfinedFolder) -> None:
        """Give away a folder and everything in it."""
        if self.uid is not None:
            folder.give(self.uid)


def lay_out(folder: InstanceFolder, spec: InstanceSpec, owner: Owner) -> None:
    """Make /opt/ml with its configuration files, and the places outside it that the job may write."""
    with ConfinedFolder.open(folder.root) as root:
        root.make_folder(folder.scratch.name).close()
        root.make_folder(folder.launch.name, owner=owner.uid).close()
        with root.make_folder(folder.ml.name, owner=owner.uid) as ml:
            for name in (*_FOLDERS, *_DEBUGGER_FOLDERS) if spec.debugger else _FOLDERS:
                ml.make_folder(name, owner=owner.uid).close()
            with ml.open_folder("input/config") as config:
                for name, values in config_files(spec).items():
                    config.replace_file(name, json.dumps(values).encode(), owner=owner.uid)
        for place in extra_folders(folder, spec).values():
            with root.make_folder(str(place.parent.relative_to(folder.root))) as parent:
                parent.make_folder(place.name, owner=owner.uid).close()
