"""Packages that scripts import and that their environment may not have.

This folder is the last entry of a program's PYTHONPATH. Each package in it replaces one that may be missing: on import,
it looks for the real one first and defers to it. `trainyard` makes `trainyard.data` importable in every environment;
scripts for Pipe channels import `sagemaker_tensorflow`, distributed scripts `horovod` and `smdistributed`, and scripts
for the debugger `smdebug`, and scripts that track what they do `smexperiments`.
"""

from pathlib import Path

from trainyard.instance.sandbox.contract import ML, Bind

_PACKAGE = Path(__file__).resolve().parents[2]
_SANDBOX_PATH = "/run/trainyard/python/trainyard"
_FOLDER = "instance/compat"


def compat_path(seen_as: str) -> str:
    """Return the path of this folder for a program that sees the ml folder at `seen_as`."""
    return f"{package_path(seen_as)}/{_FOLDER}"


def package_path(seen_as: str) -> str:
    """Return the path of the whole package for that program."""
    return _SANDBOX_PATH if seen_as == ML else str(_PACKAGE)


def package_mount() -> Bind:
    """Return the mount that makes the package visible in a sandbox: the code of this agent."""
    return Bind(_PACKAGE, _SANDBOX_PATH)
