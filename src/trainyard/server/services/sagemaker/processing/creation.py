"""CreateProcessingJob: whatever is sure to fail is refused before the job is accepted."""

from collections.abc import Iterator

from trainyard.engines.contract import Engine
from trainyard.engines.selection import SelectionRequest
from trainyard.foundation.errors import AlreadyExists, InvalidRequest, NotFound
from trainyard.foundation.jobs.processing.job import ProcessingJob
from trainyard.foundation.jobs.processing.plan import ProcessingPlan
from trainyard.foundation.jobs.processing.statuses import MESSAGES
from trainyard.foundation.jobs.transitions import first_transition
from trainyard.server.jobs.instance_jobs import capacity_kind_of
from trainyard.server.jobs.processing import KIND, LOG_GROUP, draft_of, job_of, processing_job_arn
from trainyard.server.jobs.quotas import Quotas
from trainyard.server.log_streams import GROUP, ensure_group
from trainyard.server.records.contract import CounterFull, NewEvent, Resource, ResourceKey
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.processing.data import (
    inputs_of,
    outputs_of,
    require_locations,
    require_separate,
)
from trainyard.server.services.sagemaker.training.encryption_keys import find_output_key, require_encrypted_disks
from trainyard.server.services.sagemaker.training.engine_assignment import (
    assignment_notes,
    is_spread,
    require_encryption,
    require_image,
    runs_images,
    select_job_engine,
)
from trainyard.server.services.sagemaker.training.job_role import JobRole, job_role_of
from trainyard.server.services.tag_rules import require_tags
from trainyard.wire.fault import Fault

DEFAULT_MAX_RUNTIME_S = 86400

_DEFAULT_VOLUME_GIB = 30


def create_processing_job(call: Call, shape: Shape) -> Shape:
    job = build_processing_job(call, shape)
    created = _store_job(call, job, shape)
    call.yard.compute.wake(created.id)
    return {"ProcessingJobArn": job.arn}


OPERATIONS: Operations = {"CreateProcessingJob": create_processing_job}


def build_processing_job(call: Call, shape: Shape) -> ProcessingJob:
    """Return the job that a request asks for, not yet stored; InvalidRequest if it cannot run."""
    yard, compute = call.yard, call.yard.compute
    _require_served(shape)
    require_encrypted_disks(compute, shape["ProcessingResources"], member="ClusterConfig")
    require_tags(_tags(shape))
    role = job_role_of(yard.records, shape["RoleArn"], account=call.account)
    plan = _plan(call, shape, role)
    engine = compute.engines[plan.engine]
    notes = assignment_notes(compute, plan)
    require_image(compute, plan.image, account=call.account)
    require_encryption(shape.get("NetworkConfig", {}), plan, engine=engine)
    _require_program(plan, engine)
    require_separate(plan.inputs, plan.outputs)
    require_locations(yard.objects, plan, account=call.account, file_systems=compute.file_systems)
    name = shape["ProcessingJobName"]
    return ProcessingJob(
        name=name,
        arn=processing_job_arn(call.region, call.account, name),
        account=call.account,
        region=call.region,
        plan=plan,
        created_at=call.now,
        transitions=(first_transition(MESSAGES, call.now),),
        site=compute.site,
        notes=(*notes, *role.notes, *_notes_on(shape)),
    )


def _tags(shape: Shape) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in shape.get("Tags", ())}


def _require_served(shape: Shape) -> None:
    cluster = shape["ProcessingResources"]["ClusterConfig"]
    if "InstancePreferences" in cluster:
        raise InvalidRequest(
            "Trainyard does not serve InstancePreferences yet; give ClusterConfig an InstanceType and an InstanceCount."
        )
    for member in ("InstanceType", "InstanceCount"):
        if member not in cluster:
            raise InvalidRequest(f"ClusterConfig needs an {member}.")


def _plan(call: Call, shape: Shape, role: JobRole) -> ProcessingPlan:
    compute, tags = call.yard.compute, _tags(shape)
    cluster, program = shape["ProcessingResources"]["ClusterConfig"], shape["AppSpecification"]
    image, instance_type = program["ImageUri"], cluster["InstanceType"]
    # Refuses a type that the catalog does not have.
    types = [compute.catalog[instance_type].name] * cluster["InstanceCount"]
    selected = select_job_engine(compute, SelectionRequest(image, types, tags))
    return ProcessingPlan(
        image=image,
        instance_type=instance_type,
        instance_count=len(types),
        role=role.name,
        entrypoint=tuple(program.get("ContainerEntrypoint", ())),
        arguments=tuple(program.get("ContainerArguments", ())),
        inputs=inputs_of(shape),
        outputs=outputs_of(shape),
        output_key=find_output_key(
            call.yard.objects,
            shape,
            account=call.account,
            region=call.region,
            now=call.now,
            member="ProcessingOutputConfig",
        ),
        environment=shape.get("Environment", {}),
        max_runtime_s=shape.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME_S),
        is_isolated=shape.get("NetworkConfig", {}).get("EnableNetworkIsolation", False),
        is_spread=is_spread(tags),
        engine=selected.engine,
    )


def _require_program(plan: ProcessingPlan, engine: Engine) -> None:
    """Raise InvalidRequest if nothing says what to run: the entry point of an image that is not run is not known."""
    if not plan.entrypoint and not runs_images(engine):
        raise InvalidRequest(
            f'The image "{plan.image}" is not run, so the job must say what to run: give AppSpecification a '
            "ContainerEntrypoint, as a ScriptProcessor does, or send the job to an engine that runs images."
        )


def _notes_on(shape: Shape) -> Iterator[str]:
    """Yield notes for the user on what the request asks for and the yard does not enforce."""
    cluster = shape["ProcessingResources"]["ClusterConfig"]
    if "VpcConfig" in shape.get("NetworkConfig", {}):
        yield "VpcConfig is not enforced: the job uses the network of its machine."
    if cluster.get("VolumeKmsKeyId"):
        yield "VolumeKmsKeyId is not used: the disk of the machine is encrypted, with a key of its own."
    if cluster["VolumeSizeInGB"] != _DEFAULT_VOLUME_GIB:
        yield "VolumeSizeInGB is not enforced: the job uses the disk of its machine."


def _store_job(call: Call, job: ProcessingJob, shape: Shape) -> Resource:
    records, quotas = call.yard.records, Quotas(call.yard.records)
    request = {member: value for member, value in shape.items() if member != "Tags"}
    # Created before the first instance: an administrator without a group would be shown those of other accounts.
    ensure_group(records, ResourceKey(call.account, GROUP, LOG_GROUP), region=call.region, now=call.now)
    limits = quotas.limits(job.account, job.plan.instance_types, kind=capacity_kind_of(job))
    event = NewEvent("processing-job.created", {"name": job.name})
    try:
        return records.create(draft_of(job, request, tags=_tags(shape)), now=call.now, event=event, limits=limits)
    except CounterFull as error:
        raise quotas.limit_error(error, noun="processing job") from error
    except AlreadyExists as error:
        raise _name_in_use(call, job.name) from error


def _name_in_use(call: Call, name: str) -> Fault:
    message = "Processing job names must be unique within an AWS account and region"
    try:
        arn = job_of(call.yard.records.load(ResourceKey(call.account, KIND, name))).arn
    except NotFound:
        # The other job was deleted in the meantime.
        return Fault("ResourceInUse", f"{message}; {name} was in use a moment ago. Try again.")
    return Fault("ResourceInUse", f"{message}, and a processing job with this name already exists ({arn})")
