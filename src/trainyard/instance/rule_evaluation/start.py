"""Starts the rule evaluation process in the job's Python, where a user's rule finds what it imports, if possible.

That Python must be new enough and have numpy. Otherwise the agent's own Python runs the rules.
"""

import json
import os
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location

from trainyard.foundation.interpreter import boot_code

_OLDEST_PYTHON = (3, 11)


def main() -> None:
    """Run with the folder of this package and the orders as arguments; never return."""
    _, package, text = sys.argv
    orders = json.loads(text)
    fallback = orders.pop("fallback", "")
    if fallback and (sys.version_info < _OLDEST_PYTHON or find_spec("numpy") is None):
        words = [fallback, "-c", boot_code("trainyard.instance.rule_evaluation.start"), package, json.dumps(orders)]
        os.execve(fallback, words, {**os.environ, "PYTHONPATH": _stand_ins(package)})
    _load_package(package)
    from trainyard.instance.rule_evaluation.main import evaluate_rules

    evaluate_rules(orders)


def _stand_ins(package: str) -> str:
    return f"{package}/instance/compat"


def _load_package(package: str) -> None:
    """Run `trainyard/__init__.py`, which the boot code has skipped."""
    spec = spec_from_file_location("trainyard", f"{package}/__init__.py", submodule_search_locations=[package])
    assert spec is not None, "a package in a folder has a spec"
    assert spec.loader is not None, "a package in a folder has a loader"
    module = sys.modules["trainyard"] = module_from_spec(spec)
    spec.loader.exec_module(module)
