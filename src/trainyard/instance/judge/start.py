"""Starts a judge: in the Python of the job, where a user's rule finds what its code needs, if that can run a judge.

It can if it is new enough and has numpy. Otherwise the agent's own Python takes its place.
"""

import json
import os
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location

_OLDEST = (3, 11)


def main() -> None:
    """Run with the folder of this package and orders as arguments; never returns."""
    _, package, text = sys.argv
    orders = json.loads(text)
    fallback = orders.pop("fallback", "")
    if fallback and (sys.version_info < _OLDEST or find_spec("numpy") is None):
        words = [fallback, "-c", _boot(), package, json.dumps(orders)]
        os.execve(fallback, words, {**os.environ, "PYTHONPATH": _stand_ins(package)})
    _enter(package)
    from trainyard.instance.judge.main import judge

    judge(orders)


def _boot() -> str:
    return (
        "import sys; package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:2]; "
        "from trainyard.instance.judge.start import main; main()"
    )


def _stand_ins(package: str) -> str:
    return f"{package}/instance/compat"


def _enter(package: str) -> None:
    """Have the whole package, which was entered past its beginning, by its name."""
    spec = spec_from_file_location("trainyard", f"{package}/__init__.py", submodule_search_locations=[package])
    assert spec is not None, "a package that lies in a folder can be loaded"
    assert spec.loader is not None, "and knows how"
    module = sys.modules["trainyard"] = module_from_spec(spec)
    spec.loader.exec_module(module)
