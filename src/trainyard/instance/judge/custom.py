"""The rules of a user's own file: a class that derives from smdebug's Rule, or one that is a rule as ours are.

Parameters come as strings, as a job gives them. Whatever such a rule raises makes it Error, with the last line of the
traceback, and ends the process that it has for itself.
"""

import importlib
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from trainyard.formats.tensors.contract import Mode
from trainyard.formats.tensors.layout import ENDED, MANIFEST_SUFFIX
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.sources import ByteSource
from trainyard.insight.rules.contract import DebuggerRule, Evaluation, Finding, RuleStatus
from trainyard.instance.judge.telling import Teller
from trainyard.link.contract import RuleSpec

_MODULE = "trainyard_custom_rule"
_PAUSE_S = 0.1
_OTHER_RUNS = "other_trials"  # of which the rule is given the trials
_FOR_PLATFORM = frozenset({"rule_to_invoke", "source_s3_uri", "action_json", _OTHER_RUNS})


@dataclass(frozen=True, slots=True)
class CustomRule:
    """A class that derives from smdebug's Rule, to be made for a trial."""

    spec: RuleSpec
    made_of: Any


def load_rule(spec: RuleSpec, file: Path) -> DebuggerRule | CustomRule:
    """The rule of a file. InvalidRequest when it has no such class; whatever the file raises is raised."""
    module = _load(file)
    found = getattr(module, spec.rule, None)
    if not isinstance(found, type):
        there = ", ".join(name for name, value in vars(module).items() if _is_own_class(value)) or "none"
        raise InvalidRequest(f'The file {spec.source} has no class "{spec.rule}"; its classes are: {there}.')
    if issubclass(found, importlib.import_module("smdebug.rules").Rule):
        return CustomRule(spec, found)
    if callable(getattr(found, "check", None)):
        return cast(DebuggerRule, found(**_parameters(spec)))
    raise InvalidRequest(f'The class "{spec.rule}" derives neither from smdebug.rules.Rule nor has it a method check.')


def judge_trial(rule: CustomRule, source: ByteSource, *, runs: Mapping[str, str], teller: Teller, worker: str) -> None:
    """Have a rule of smdebug's kind judge every step of the trial, until no more come."""
    findings: list[Finding] = []
    judged = 0
    for step, has_found in _judged(rule, source, runs):
        judged += 1
        if not has_found:
            continue
        message = f"{rule.spec.rule} found what it looks for at step {step}."
        findings.append(Finding(step, Mode.GLOBAL, worker, "", message))
        if len(findings) == 1:
            found = Evaluation(rule.spec.name, RuleStatus.ISSUES_FOUND, message, (findings[0],), steps_judged=judged)
            teller.tell_rule(found, findings[0], worker=worker)
    status = RuleStatus.ISSUES_FOUND if findings else RuleStatus.NO_ISSUES_FOUND
    details = f"{findings[0].message} It did so at {len(findings)} of {judged} steps." if findings else ""
    teller.tell_rule(Evaluation(rule.spec.name, status, details, steps_judged=judged), None, worker=worker)


def _judged(rule: CustomRule, source: ByteSource, runs: Mapping[str, str]) -> Iterator[tuple[int, bool]]:
    if not _has_begun(source):
        return
    exceptions = importlib.import_module("smdebug.exceptions")
    trials = importlib.import_module("smdebug.trials")
    others = rule.spec.parameters.get(_OTHER_RUNS, "").split(",")
    opened = [trials.create_trial(runs[uri]) for uri in others if uri in runs]
    given = {_OTHER_RUNS: opened} if opened else {}
    made = rule.made_of(trials.create_trial(source), **_parameters(rule.spec), **given)
    for step in count():
        try:
            made.invoke(step)
        except exceptions.NoMoreData:
            return
        except (exceptions.StepUnavailable, exceptions.TensorUnavailable, exceptions.TensorUnavailableForStep):
            continue
        except exceptions.RuleEvaluationConditionMet as found:
            yield step, True
            if getattr(found, "end_of_rule", False):
                return
        else:
            yield step, False


def _has_begun(source: ByteSource) -> bool:
    """Wait until a worker has told of itself; False when the program has ended and none has."""
    while True:
        names = [entry.name for entry in source.entries()]
        has_begun = any(name.endswith(MANIFEST_SUFFIX) for name in names)
        if has_begun or ENDED in names:
            return has_begun
        time.sleep(_PAUSE_S)


def _parameters(spec: RuleSpec) -> dict[str, str]:
    return {name: value for name, value in spec.parameters.items() if name not in _FOR_PLATFORM}


def _load(file: Path) -> ModuleType:
    spec = spec_from_file_location(_MODULE, file)
    assert spec is not None, "a file with the suffix of Python can be loaded"
    assert spec.loader is not None, "and knows how"
    module = sys.modules[_MODULE] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_own_class(value: object) -> bool:
    return isinstance(value, type) and value.__module__ == _MODULE


def last_line(error: BaseException) -> str:
    """The last line of the traceback of an exception, and where in the user's file it came up."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith("rule.py")]
    where = f" (line {frames[-1].lineno} of the rule's file)" if frames else ""
    return f"{traceback.format_exception_only(error)[-1].strip()}{where}"
