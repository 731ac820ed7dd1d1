"""The plan of an input channel of a job."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """One input channel: which objects, and how the instances share them.

    The objects are those under the prefix `uri` or, for a manifest, those that the object at `uri` lists.
    """

    name: str
    uri: str
    is_manifest: bool = False
    is_sharded: bool = False  # each instance gets a part of the objects instead of all
    shuffle_seed: int | None = None
    content_type: str | None = None
    mode: str = "File"
    record_wrapper: str = "None"
    compression: str = "None"
    attributes: tuple[str, ...] = ()  # of an augmented manifest
    file_system: str = ""  # id of a file system, instead of `uri`
    directory: str = ""  # in that file system
    is_writable: bool = True  # of a file system
    groups: tuple[str, ...] = ()  # of the instances that get it; empty means all
    # Where the program sees it; empty is the folder of its name in /opt/ml/input/data.
    path: str = ""
