"""What a job may ask for that keeps it and others apart on the network: had in full, or the job is refused."""

from trainyard.engines.contract import Engine
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs import TrainingPlan
from trainyard.server.services.contract import Shape


def require_isolation(plan: TrainingPlan, engine: Engine) -> None:
    """InvalidRequest when the job shall be isolated and cannot be."""
    why = engine.why_not_isolated(plan.instance_count) if plan.is_isolated else ""
    if why:
        where, command = ("here", "doctor") if engine.is_here else (f"on the engine {engine.name}", "engines")
        raise InvalidRequest(
            f"EnableNetworkIsolation cannot be had {where}, because {why}. `trainyard {command}` tells what there is; "
            "or create the training job without it."
        )


def require_encryption(shape: Shape, plan: TrainingPlan, *, engine: Engine) -> None:
    """InvalidRequest when there would be traffic to encrypt: a job of one instance has none."""
    if not shape.get("EnableInterContainerTrafficEncryption") or plan.instance_count == 1:
        return
    if not engine.is_here:
        raise InvalidRequest(
            "EnableInterContainerTrafficEncryption cannot be had on the engine "
            f"{engine.name}: traffic between the machines of a job is not encrypted. Create the training job without "
            "it and keep that network to yourself, or send the job to an engine of one machine."
        )
    raise InvalidRequest(
        "EnableInterContainerTrafficEncryption cannot be had here: traffic between the instances of a job is not "
        "encrypted, because it never leaves the kernel of this machine. Create the training job without it; "
        "EnableNetworkIsolation keeps everybody else away from that traffic."
    )
