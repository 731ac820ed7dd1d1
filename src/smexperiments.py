"""Makes `import smexperiments` work outside of jobs, for scripts and notebooks that track experiments.

An installed smexperiments package takes precedence, because Python prefers packages over modules.
"""

from importlib.util import find_spec
from pathlib import Path

_spec = find_spec("trainyard")
assert _spec is not None, "this file is part of trainyard"
assert _spec.origin is not None, "trainyard is not a namespace package"
__path__ = [str(Path(_spec.origin).parent / "instance" / "compat" / "smexperiments")]
