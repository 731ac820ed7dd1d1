"""Which engine a job is given to, and that this one does what the job asks for: had in full, or the job is refused."""

from collections.abc import Mapping, Sequence

from trainyard.engines.catalog import InstanceType
from trainyard.engines.choosing import Choice, Wanted, choose
from trainyard.engines.contract import Engine
from trainyard.engines.placement import check_strictly, fit
from trainyard.foundation.engine_names import SPREAD_TAG, STRICT
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs import TrainingPlan
from trainyard.server.reach import is_of_this_machine
from trainyard.server.services.contract import Workshop
from trainyard.server.services.sagemaker.isolation import require_isolation


def engine_for(workshop: Workshop, wanted: Wanted) -> Choice:
    """The engine of a job; InvalidRequest when the yard does not have the one that it is sent to."""
    images = workshop.images
    return choose(
        wanted,
        workshop.engines,
        rules=workshop.engine_rules,
        must_run=lambda image: bool(images.container_of(image)),
    )


def is_spread(tags: Mapping[str, str]) -> bool:
    """Whether each instance of a job shall have a node of its own, as its tags say."""
    if tags.get(SPREAD_TAG, STRICT) != STRICT:
        raise InvalidRequest(
            f'The tag {SPREAD_TAG} is "{tags[SPREAD_TAG]}"; it can only be "{STRICT}", by which each instance gets a '
            "node of its own."
        )
    return SPREAD_TAG in tags


def runs_images(engine: Engine) -> bool:
    """Whether jobs of an engine run in their images, and not in the environments that these stand for."""
    return not engine.capabilities().images


def assignment_notes(workshop: Workshop, plan: TrainingPlan) -> tuple[str, ...]:
    """What the image and the instance types of a job mean on its engine; InvalidRequest when they cannot be had."""
    engine = workshop.engines[plan.engine]
    notes = _image_notes(workshop, plan.image, engine=engine)
    require_isolation(plan, engine)
    _require_reach(workshop, engine)
    require_warm_workers(plan, engine)
    return (*notes, *_room_notes(workshop, plan, engine=engine))


def require_warm_workers(plan: TrainingPlan, engine: Engine) -> None:
    """InvalidRequest when something of the job shall be kept warm where nothing is."""
    why_not = engine.capabilities().warm_workers if plan.keep_alive_s else ""
    if why_not:
        raise InvalidRequest(
            f"KeepAlivePeriodInSeconds cannot be had on the engine {engine.name}, because {why_not}. Leave it out."
        )


def _image_notes(workshop: Workshop, image: str, *, engine: Engine) -> tuple[str, ...]:
    why_not = engine.capabilities().images
    if not why_not:
        return ()
    if workshop.images.container_of(image) and any(map(runs_images, workshop.engines)):
        able = next(each.name for each in workshop.engines if runs_images(each))
        raise InvalidRequest(
            f'The image "{image}" must really run, but the job goes to the engine {engine.name}, and {why_not}. Send '
            f"it to the engine {able}, or give the image a Python with `trainyard images map`."
        )
    return workshop.images.environment(image, strict=workshop.strict).notes


def _require_reach(workshop: Workshop, engine: Engine) -> None:
    """Instances on other machines fetch what they need from the yard, unless all share an S3."""
    if not workshop.out_of_reach or engine.is_here:
        return
    far = next((node for node in engine.capacity().nodes if not is_of_this_machine(node.address)), None)
    if far is not None:
        raise InvalidRequest(
            f"The engine {engine.name} has the node {far.name} on another machine, which does not reach this yard, "
            f"because {workshop.out_of_reach}. Start the yard with `--host` and an address of this machine that the "
            "nodes reach, set `advertise` where they know it by another, or keep objects in an S3 with the setting "
            "`objects`."
        )


def _room_notes(workshop: Workshop, plan: TrainingPlan, *, engine: Engine) -> tuple[str, ...]:
    types = [workshop.catalog[name] for name in plan.instance_types]
    machine = engine.capacity()
    if machine.obstacle:
        return (f"When the job was created, its engine {engine.name} could place nothing: {machine.obstacle}",)
    fitted = fit(types, machine, is_spot=plan.is_spot, is_spread=plan.is_spread)
    if not fitted.nodes:
        return (f"When the job was created, its engine {engine.name} had no node for it; it waits for one.",)
    _require_gpus(types, engine)
    if workshop.strict:
        check_strictly(types, machine, is_spot=plan.is_spot, is_spread=plan.is_spread)
    return fitted.shortfalls


def _require_gpus(types: Sequence[InstanceType], engine: Engine) -> None:
    """Refuse what would have no GPU although there are some; where there are none, a job is told that it has none."""
    why_not = engine.capabilities().gpus
    wanted = next((each.name for each in types if each.gpus != 0), "")
    if wanted and why_not:
        raise InvalidRequest(
            f"The instance type {wanted} has GPUs, which the engine {engine.name} cannot give, because {why_not}. Name "
            "a type without GPUs, or send the job to another engine."
        )
