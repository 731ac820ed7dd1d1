"""`import smdebug` outside of jobs, for notebooks that read trials and for rules: the stand-in that jobs have.

A package of this name that is installed beside this file wins over it, as Python prefers folders.
"""

from importlib.util import find_spec
from pathlib import Path

_spec = find_spec("trainyard")
assert _spec is not None, "this file is part of trainyard"
assert _spec.origin is not None, "which is no namespace"
__path__ = [str(Path(_spec.origin).parent / "instance" / "compat" / "smdebug")]

from smdebug.names import *  # noqa: E402, F403
