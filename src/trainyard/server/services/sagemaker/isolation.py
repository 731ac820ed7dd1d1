"""What a job may ask for that keeps it and others apart on the network: had in full, or the job is refused."""

from trainyard.engines.contract import Engine
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs import TrainingPlan
from trainyard.server.services.contract import Shape


def require_isolation(plan: TrainingPlan, engine: Engine) -> None:
    """InvalidRequest when the job shall be isolated and cannot be."""
    why = engine.why_not_isolated(plan.instance_count) if plan.is_isolated else ""
    if why:
        raise InvalidRequest(
            f"EnableNetworkIsolation cannot be had here, because {why}. `trainyard doctor` tells what this machine "
            "lacks; or create the training job without it."
        )


def require_encryption(shape: Shape, plan: TrainingPlan) -> None:
    """InvalidRequest when there would be traffic to encrypt: a job of one instance has none."""
    if shape.get("EnableInterContainerTrafficEncryption") and plan.instance_count > 1:
        raise InvalidRequest(
            "EnableInterContainerTrafficEncryption cannot be had here: traffic between the instances of a job is not "
            "encrypted, because it never leaves the kernel of this machine. Create the training job without it; "
            "EnableNetworkIsolation keeps everybody else away from that traffic."
        )
