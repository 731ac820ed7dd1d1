"""When the processes of a job are said to hang: all who watch them have to agree on it."""

from contextlib import suppress

from trainyard.link.contract import InstanceSpec

VARIABLE = "TRAINYARD_HANG_AFTER_SECONDS"  # of a job's environment: its own limit, 0 for none


def hang_limit_s(spec: InstanceSpec) -> float:
    """How long the processes of a job may do nothing before their stacks are taken; 0 is for ever."""
    with suppress(ValueError):
        return max(0.0, float(spec.environment.get(VARIABLE, spec.hang_after_s)))
    return float(spec.hang_after_s)
