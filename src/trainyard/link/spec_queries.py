"""Questions about a spec that the yard, agents and hooks must all answer in the same way. Pure."""

import re
from collections.abc import Sequence
from contextlib import suppress

from trainyard.link.contract import InstanceSpec, RuleSpec

# A variable of a job's environment that sets its own limit; 0 for none.
HANG_VARIABLE = "TRAINYARD_HANG_AFTER_SECONDS"

_STOP, _CHECKPOINT_THEN_STOP = "stoptraining", "checkpointthenstop"


def is_spread(spec: InstanceSpec) -> bool:
    """Whether the instances of the job run on several machines."""
    return len(set(spec.addresses)) > 1


def remote_hosts(spec: InstanceSpec) -> Sequence[str]:
    """Return the instances of the job that run on other machines than this one."""
    if not spec.addresses:
        return ()
    own = spec.addresses[spec.hosts.index(spec.instance)]
    return [host for host, address in zip(spec.hosts, spec.addresses, strict=True) if address != own]


def is_first_on_machine(spec: InstanceSpec) -> bool:
    """Whether no earlier instance of the job runs on the same machine."""
    others = remote_hosts(spec)
    return next(host for host in spec.hosts if host not in others) == spec.instance


def hang_limit_s(spec: InstanceSpec) -> float:
    """Return how long the processes of a job may do nothing before they count as hanging; 0 for no limit."""
    with suppress(ValueError):
        return max(0.0, float(spec.environment.get(HANG_VARIABLE, spec.hang_after_s)))
    return float(spec.hang_after_s)


def stops_training(rule: RuleSpec, job: str) -> bool:
    """Whether the agent stops the program of a job when the rule finds something. An action may name other jobs."""
    return bool(_action_names(rule, job) & {_STOP, _CHECKPOINT_THEN_STOP})


def wants_checkpoint(rule: RuleSpec, job: str) -> bool:
    """Whether the program saves a checkpoint before it is stopped."""
    return _CHECKPOINT_THEN_STOP in _action_names(rule, job)


def _action_names(rule: RuleSpec, job: str) -> set[str]:
    """The rule's actions for this job, in lower case and without punctuation: `stop_training` is `StopTraining`."""
    if rule.is_dry:
        return set()
    meant = [action for action in rule.actions if job.startswith(action.get("training_job_prefix", ""))]
    return {re.sub(r"[^a-z]", "", action.get("name", "").lower()) for action in meant}
