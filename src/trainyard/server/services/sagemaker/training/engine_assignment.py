"""Select the engine of a job, and refuse the job if the engine cannot do all that it asks for."""

from collections.abc import Mapping, Sequence

from trainyard.engines.catalog import InstanceType
from trainyard.engines.contract import Engine
from trainyard.engines.images import ImageReference
from trainyard.engines.placement import check_promised_resources, fit_types
from trainyard.engines.selection import EngineSelection, SelectionRequest, select_engine
from trainyard.foundation.engine_names import SPREAD_TAG, STRICT
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.instance_job import InstancePlan
from trainyard.foundation.jobs.training.plan import TrainingPlan
from trainyard.server.addresses import is_own_address
from trainyard.server.services.contract import Compute, Shape


def select_job_engine(compute: Compute, wanted: SelectionRequest) -> EngineSelection:
    """Select the engine of a job; InvalidRequest if the yard does not have the engine that the job names."""
    images = compute.images
    return select_engine(
        wanted,
        compute.engines,
        rules=compute.engine_rules,
        must_run=lambda image: bool(images.container_of(image)),
    )


def is_spread(tags: Mapping[str, str]) -> bool:
    """Whether the tags of a job ask for one node per instance."""
    if tags.get(SPREAD_TAG, STRICT) != STRICT:
        raise InvalidRequest(
            f'The tag {SPREAD_TAG} is "{tags[SPREAD_TAG]}"; its only value is "{STRICT}", which gives each instance a '
            "node of its own."
        )
    return SPREAD_TAG in tags


def runs_images(engine: Engine) -> bool:
    """Whether an engine runs the images of jobs, rather than the environments that they map to."""
    return not engine.capabilities().images


def assignment_notes(compute: Compute, plan: InstancePlan) -> tuple[str, ...]:
    """Return notes on how the engine provides a job's image and instance types; InvalidRequest if it cannot."""
    engine = compute.engines[plan.engine]
    notes = notes_on_image(compute, plan.image, engine=engine)
    require_isolation(plan, engine)
    _require_reach(compute, engine)
    return (*notes, *_capacity_notes(compute, plan, engine=engine))


def require_warm_workers(plan: TrainingPlan, engine: Engine) -> None:
    """Raise InvalidRequest if a job asks for a warm pool on an engine without warm workers."""
    why_not = engine.capabilities().warm_workers if plan.keep_alive_s else ""
    if why_not:
        raise InvalidRequest(
            f"The engine {engine.name} does not support KeepAlivePeriodInSeconds, because {why_not}. Leave it out."
        )


def require_isolation(plan: InstancePlan, engine: Engine) -> None:
    """Raise InvalidRequest if a job asks for network isolation and the engine cannot isolate it."""
    why = engine.why_not_isolated(plan.instance_count) if plan.is_isolated else ""
    if why:
        where, command = ("here", "doctor") if engine.is_here else (f"on the engine {engine.name}", "engines")
        raise InvalidRequest(
            f"EnableNetworkIsolation is not available {where}, because {why}. `trainyard {command}` shows what is "
            "available; or create the job without it."
        )


def require_encryption(shape: Shape, plan: InstancePlan, *, engine: Engine) -> None:
    """Raise InvalidRequest if a job of several instances asks to encrypt the traffic between them."""
    if not shape.get("EnableInterContainerTrafficEncryption") or plan.instance_count == 1:
        return
    if not engine.is_here:
        raise InvalidRequest(
            "EnableInterContainerTrafficEncryption is not available on the engine "
            f"{engine.name}: traffic between the machines of a job is not encrypted. Create the job without "
            "it and protect that network, or send the job to an engine of one machine."
        )
    raise InvalidRequest(
        "EnableInterContainerTrafficEncryption is not available here: traffic between the instances of a job is not "
        "encrypted, because it never leaves the kernel of this machine. Create the job without it; "
        "EnableNetworkIsolation protects that traffic from everyone else."
    )


def require_image(compute: Compute, image: str, *, account: str) -> None:
    """Refuse a container image that is not on this machine, or that is in the registry of another account.

    Mapped images are for all accounts. Jobs do not pull images, so a missing image would only fail later.
    """
    container, owner = compute.images.container_of(image), ImageReference.parse(image).account
    if not container:
        return
    if container == image and owner not in ("", account):
        raise InvalidRequest(
            f'The image "{image}" is in the registry of another account. The operator of this yard can let everyone '
            f"use it with `trainyard images map {ImageReference.parse(image)} --container LOCAL_IMAGE`."
        )
    if compute.containers is not None:
        compute.containers.full_name(container)


def notes_on_image(compute: Compute, image: str, *, engine: Engine) -> tuple[str, ...]:
    """Return notes on the environment that an image maps to; InvalidRequest if the engine cannot run the image."""
    why_not = engine.capabilities().images
    if not why_not:
        return ()
    if compute.images.container_of(image) and any(map(runs_images, compute.engines)):
        able = next(each.name for each in compute.engines if runs_images(each))
        raise InvalidRequest(
            f'The image "{image}" must run as a container, but the job goes to the engine {engine.name}, and {why_not}.'
            f" Send the job to the engine {able}, or map the image to a Python with `trainyard images map`."
        )
    return compute.images.environment(image, strict=compute.strict).notes


def _require_reach(compute: Compute, engine: Engine) -> None:
    """Refuse a job whose instances run on machines that cannot fetch its data from the yard."""
    if not compute.out_of_reach or engine.is_here:
        return
    remote = next((node for node in engine.capacity().nodes if not is_own_address(node.address)), None)
    if remote is not None:
        raise InvalidRequest(
            f"The node {remote.name} of the engine {engine.name} is on another machine, which cannot reach this yard, "
            f"because {compute.out_of_reach}. Start the yard with `--host` and an address of this machine that the "
            "nodes can reach, set `advertise` if they reach it by another address, or store objects in an S3 with the "
            "setting `objects`."
        )


def _capacity_notes(compute: Compute, plan: InstancePlan, *, engine: Engine) -> tuple[str, ...]:
    types = [compute.catalog[name] for name in plan.instance_types]
    capacity = engine.capacity()
    if capacity.obstacle:
        return (f"When the job was created, its engine {engine.name} could not place jobs: {capacity.obstacle}",)
    fitted = fit_types(types, capacity, is_spot=plan.is_spot, is_spread=plan.is_spread)
    if not fitted.nodes:
        return (f"When the job was created, its engine {engine.name} had no node for it; the job waits for one.",)
    _require_gpus(types, engine)
    if compute.strict:
        check_promised_resources(types, capacity, is_spot=plan.is_spot, is_spread=plan.is_spread)
    return fitted.shortfalls


def _require_gpus(types: Sequence[InstanceType], engine: Engine) -> None:
    """Refuse an instance type with GPUs if the engine cannot provide the GPUs of the machine.

    If the machine has no GPUs, the job runs and a note says so.
    """
    why_not = engine.capabilities().gpus
    wanted = next((each.name for each in types if each.gpus != 0), "")
    if wanted and why_not:
        raise InvalidRequest(
            f"The instance type {wanted} has GPUs, which the engine {engine.name} cannot provide, because {why_not}. "
            "Choose a type without GPUs, or send the job to another engine."
        )
