"""Import paths that programs find where their environment does not have them.

This folder is the last entry of a program's PYTHONPATH, and each package in it stands in for one that may be absent:
when it is imported, it looks for the real one first, and hands over to that. `trainyard` is there so that
`trainyard.data` can be imported in every environment, `sagemaker_tensorflow` because scripts for Pipe channels use it,
`horovod` and `smdistributed` because scripts for several ranks do.
"""

from pathlib import Path

from trainyard.instance.sandbox.contract import ML, Bind

_PACKAGE = Path(__file__).resolve().parents[2]
_SEEN_AS = "/run/trainyard/python/trainyard"
_FOLDER = "instance/compat"


def stand_ins(seen_as: str) -> str:
    """The folder as a program has it that sees the ml folder as `seen_as`."""
    return f"{seen_package(seen_as)}/{_FOLDER}"


def seen_package(seen_as: str) -> str:
    """The whole package, as that program has it."""
    return _SEEN_AS if seen_as == ML else str(_PACKAGE)


def shown_package() -> Bind:
    """What makes it visible in a sandbox: the code of this agent."""
    return Bind(_PACKAGE, _SEEN_AS)
