"""Makes the instance specs of an attempt of a processing job: the program, its inputs, and where its outputs go."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainyard.engines.contract import Engine
from trainyard.engines.file_systems import FileSystems
from trainyard.engines.images import Images, PythonEnvironment
from trainyard.foundation.jobs.attempts import Attempt, InstanceState
from trainyard.foundation.jobs.processing.job import ProcessingJob
from trainyard.foundation.jobs.processing.plan import ProcessingPlan
from trainyard.foundation.jobs.training.plan import ONLY_GROUP
from trainyard.link.contract import (
    PROTOCOL,
    ChannelSpec,
    ContainerSpec,
    InstanceSpec,
    OutputSpec,
    ProcessingSpec,
    ProgramSpec,
)
from trainyard.objects.contract import ObjectStore
from trainyard.server.channel_contents import ChannelContents, channel_spec, load_contents
from trainyard.server.control.instances.yard_context import GRACE, YardContext, limits_of
from trainyard.server.records.contract import AccessKey


@dataclass(frozen=True, slots=True)
class ProcessingSpecMaker:
    """Makes the specs of an attempt. As long as the data stays the same, so do the specs."""

    objects: ObjectStore
    images: Images
    file_systems: FileSystems
    context: YardContext

    def make_specs(
        self, job_id: str, job: ProcessingJob, attempt: Attempt, *, key: AccessKey, uid: int | None, engine: Engine
    ) -> tuple[InstanceSpec, ...]:
        """Make a spec for each instance. InvalidRequest if data or the environment was deleted since the create."""
        contents = {
            each.name: load_contents(self.objects, each, account=job.account, file_systems=self.file_systems)
            for each in job.plan.inputs
        }
        container = None if engine.capabilities().images else self._container(job.plan)
        base = PythonEnvironment("") if container else self.images.environment(job.plan.image)
        environment = {**self.context.variables(job, key, is_here=engine.is_here), **job.plan.environment}
        objects = self.context.objects_for(job, key, is_here=engine.is_here)
        specs = (
            self._spec(job_id, job, attempt, state=state, contents=contents, base=base, uid=uid)
            for state in attempt.instances
        )
        return tuple(replace(spec, container=container, objects=objects, environment=environment) for spec in specs)

    def _spec(
        self,
        job_id: str,
        job: ProcessingJob,
        attempt: Attempt,
        *,
        state: InstanceState,
        contents: Mapping[str, ChannelContents],
        base: PythonEnvironment,
        uid: int | None,
    ) -> InstanceSpec:
        plan = job.plan
        return InstanceSpec(
            protocol=PROTOCOL,
            job_id=job_id,
            job_name=job.name,
            job_arn=job.arn,
            account=job.account,
            region=job.region,
            attempt=attempt.number,
            instance=state.name,
            hosts=plan.hosts,
            instance_type=plan.instance_type,
            instance_group=ONLY_GROUP,
            program=ProgramSpec(command=(*plan.entrypoint, *plan.arguments), interpreter=base.python),
            hyperparameters={},
            environment={},
            channels=_channels(plan, contents, host=state.name),
            output_path="",
            output_key=plan.output_key,
            metrics=[],
            limits=limits_of(state.share),
            objects=self.context.objects,
            grace_s=int(GRACE.total_seconds()),
            max_runtime_s=max(1, plan.max_runtime_s - int(job.time_used.total_seconds())),
            hang_after_s=int(self.context.hang_after.total_seconds()),
            uid=uid,
            is_isolated=plan.is_isolated,
            uploads=False,
            hidden=[str(path) for path in self.context.hidden],
            environments=str(self.context.environments / job.account),
            environments_limit_bytes=self.context.environments_limit_bytes,
            notes=base.notes,
            doorbell=str(self.context.doorbell or ""),
            node=state.share.node,
            processing=ProcessingSpec(
                [OutputSpec(each.name, each.uri, each.path, each.is_continuous) for each in plan.outputs]
            ),
        )

    def _container(self, plan: ProcessingPlan) -> ContainerSpec:
        """Return the image to run. The engine adds which program runs it, and how."""
        image = self.images.container_of(plan.image) or plan.image
        return ContainerSpec(image, entrypoint=plan.entrypoint, arguments=plan.arguments)


def _channels(plan: ProcessingPlan, contents: Mapping[str, ChannelContents], *, host: str) -> list[ChannelSpec]:
    """Return the inputs of a host, with its part of each."""
    number, count = plan.hosts.index(host), len(plan.hosts)
    return [channel_spec(each, contents[each.name], number=number, count=count) for each in plan.inputs]
