"""Rules from a user's own file: a class that derives from smdebug's Rule, or one with the interface of our own rules.

Parameters are strings, as in the job's request. An exception gives the rule the status Error, with the last line of the
traceback, and ends its process, which it has for itself.
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
from trainyard.formats.tensors.recordings.layout import ENDED, MANIFEST_SUFFIX
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.foundation.sources import ByteSource
from trainyard.insight.rules.contract import DebuggerRule, Evaluation, Finding
from trainyard.instance.rule_evaluation.event_client import EventClient
from trainyard.link.contract import RuleSpec

_MODULE = "trainyard_custom_rule"
_PAUSE_S = 0.1
_OTHER_TRIALS = "other_trials"
_PLATFORM_PARAMETERS = frozenset({"rule_to_invoke", "source_s3_uri", "action_json", _OTHER_TRIALS})


@dataclass(frozen=True, slots=True)
class CustomRule:
    """A class that derives from smdebug's Rule; it is instantiated with a trial."""

    spec: RuleSpec
    rule_class: Any


def load_rule(spec: RuleSpec, file: Path) -> DebuggerRule | CustomRule:
    """Load a rule from a file. InvalidRequest if the class is missing or unsuitable; errors of the file propagate."""
    module = _load(file)
    rule_class = getattr(module, spec.rule, None)
    if not isinstance(rule_class, type):
        classes = ", ".join(name for name, value in vars(module).items() if _is_own_class(value)) or "none"
        raise InvalidRequest(f'The file {spec.source} has no class "{spec.rule}"; its classes are: {classes}.')
    if issubclass(rule_class, importlib.import_module("smdebug.rules").Rule):
        return CustomRule(spec, rule_class)
    if callable(getattr(rule_class, "check", None)):
        return cast(DebuggerRule, rule_class(**_parameters(spec)))
    raise InvalidRequest(f'The class "{spec.rule}" must derive from smdebug.rules.Rule or have a method named check.')


def evaluate_trial(
    rule: CustomRule, source: ByteSource, *, runs: Mapping[str, str], client: EventClient, worker: str
) -> None:
    """Invoke a rule of smdebug's kind for every step of the trial, until there are no more."""
    findings: list[Finding] = []
    judged = 0
    for step, is_condition_met in _evaluate_steps(rule, source, runs):
        judged += 1
        if not is_condition_met:
            continue
        message = f"The condition of {rule.spec.rule} was met at step {step}."
        findings.append(Finding(step, Mode.GLOBAL, worker, "", message))
        if len(findings) == 1:
            first = Evaluation(rule.spec.name, RuleStatus.ISSUES_FOUND, message, (findings[0],), steps_judged=judged)
            client.send_rule(first, findings[0], worker=worker)
    status = RuleStatus.ISSUES_FOUND if findings else RuleStatus.NO_ISSUES_FOUND
    details = f"{findings[0].message} In total, it was met at {len(findings)} of {judged} steps." if findings else ""
    client.send_rule(Evaluation(rule.spec.name, status, details, steps_judged=judged), None, worker=worker)


def _evaluate_steps(rule: CustomRule, source: ByteSource, runs: Mapping[str, str]) -> Iterator[tuple[int, bool]]:
    if not _has_begun(source):
        return
    exceptions = importlib.import_module("smdebug.exceptions")
    trials = importlib.import_module("smdebug.trials")
    others = rule.spec.parameters.get(_OTHER_TRIALS, "").split(",")
    opened = [trials.create_trial(runs[uri]) for uri in others if uri in runs]
    other_trials = {_OTHER_TRIALS: opened} if opened else {}
    instance = rule.rule_class(trials.create_trial(source), **_parameters(rule.spec), **other_trials)
    for step in count():
        try:
            instance.invoke(step)
        except exceptions.NoMoreData:
            return
        except (exceptions.StepUnavailable, exceptions.TensorUnavailable, exceptions.TensorUnavailableForStep):
            continue
        except exceptions.RuleEvaluationConditionMet as met:
            yield step, True
            if getattr(met, "end_of_rule", False):
                return
        else:
            yield step, False


def _has_begun(source: ByteSource) -> bool:
    """Wait until a worker has written its manifest; return False if the program ended without one."""
    while True:
        names = [entry.name for entry in source.entries()]
        has_begun = any(name.endswith(MANIFEST_SUFFIX) for name in names)
        if has_begun or ENDED in names:
            return has_begun
        time.sleep(_PAUSE_S)


def _parameters(spec: RuleSpec) -> dict[str, str]:
    return {name: value for name, value in spec.parameters.items() if name not in _PLATFORM_PARAMETERS}


def _load(file: Path) -> ModuleType:
    spec = spec_from_file_location(_MODULE, file)
    assert spec is not None, "a Python file has a spec"
    assert spec.loader is not None, "a Python file has a loader"
    module = sys.modules[_MODULE] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_own_class(value: object) -> bool:
    return isinstance(value, type) and value.__module__ == _MODULE


def last_line(error: BaseException) -> str:
    """Return the last line of an exception's traceback, and where in the user's file it was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith("rule.py")]
    where = f" (line {frames[-1].lineno} of the rule's file)" if frames else ""
    return f"{traceback.format_exception_only(error)[-1].strip()}{where}"
