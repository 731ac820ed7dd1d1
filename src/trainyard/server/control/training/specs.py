"""Makes the instance specs of an attempt: the plan, the share of the machine and of the data, the credentials."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainyard.engines.contract import Engine
from trainyard.engines.file_systems import FileSystems
from trainyard.engines.images import Images, PythonEnvironment
from trainyard.foundation.jobs.attempts import Attempt, InstanceState
from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import DebuggerPlan, ProfilerPlan, TrainingPlan
from trainyard.link.contract import (
    PROTOCOL,
    ChannelSpec,
    ContainerSpec,
    DebuggerSpec,
    GroupSpec,
    InstanceSpec,
    LaunchSpec,
    MetricSpec,
    ProfilerSpec,
    ProgramSpec,
    RuleSpec,
    SyncSpec,
    WarmSpec,
)
from trainyard.objects.contract import ObjectStore
from trainyard.server.channel_contents import ChannelContents, channel_spec, load_contents
from trainyard.server.control.actions.triggers import is_done_by_agent
from trainyard.server.control.instances.yard_context import GRACE, YardContext, limits_of
from trainyard.server.records.contract import AccessKey


@dataclass(frozen=True, slots=True)
class SpecMaker:
    """Makes the specs of an attempt. As long as the data stays the same, so do the specs."""

    objects: ObjectStore
    images: Images
    file_systems: FileSystems
    context: YardContext

    def make_specs(
        self, job_id: str, job: TrainingJob, attempt: Attempt, *, key: AccessKey, uid: int | None, engine: Engine
    ) -> tuple[InstanceSpec, ...]:
        """Make a spec for each instance. InvalidRequest if data or the environment was deleted since the create."""
        contents = {
            each.name: load_contents(self.objects, each, account=job.account, file_systems=self.file_systems)
            for each in job.plan.channels
        }
        container = None if engine.capabilities().images else self._container(job.plan)
        base = PythonEnvironment("") if container else self.images.environment(job.plan.image)
        environment = {**self.context.variables(job, key, is_here=engine.is_here), **job.plan.environment}
        objects = self.context.objects_for(job, key, is_here=engine.is_here)
        specs = (
            self._spec(
                job_id, job, attempt, state=state, contents=contents, base=base, environment=environment, uid=uid
            )
            for state in attempt.instances
        )
        return tuple(replace(spec, container=container, objects=objects) for spec in specs)

    def _spec(
        self,
        job_id: str,
        job: TrainingJob,
        attempt: Attempt,
        *,
        state: InstanceState,
        contents: Mapping[str, ChannelContents],
        base: PythonEnvironment,
        environment: Mapping[str, str],
        uid: int | None,
    ) -> InstanceSpec:
        plan = job.plan
        group = plan.group_of(state.name)
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
            instance_type=group.instance_type,
            instance_group=group.name,
            program=ProgramSpec(plan.entry_point, plan.submit_directory, plan.command, base.python),
            hyperparameters=plan.hyperparameters,
            environment=environment,
            channels=_channels(plan, contents, host=state.name),
            output_path=plan.output_path,
            is_output_compressed=plan.is_output_compressed,
            output_key=plan.output_key,
            metrics=[MetricSpec(each.name, each.regex) for each in plan.metrics],
            limits=limits_of(state.share),
            objects=self.context.objects,
            grace_s=int(GRACE.total_seconds()),
            max_runtime_s=max(1, plan.max_runtime_s - int(job.time_used.total_seconds())),
            hang_after_s=int(self.context.hang_after.total_seconds()),
            uid=uid,
            launch=_launch(plan, attempt),
            groups=_groups(plan),
            is_isolated=plan.is_isolated,
            uploads=state.name == plan.hosts[0],
            hidden=[str(path) for path in self.context.hidden],
            environments=str(self.context.environments / job.account),
            environments_limit_bytes=self.context.environments_limit_bytes,
            notes=base.notes,
            extra_paths=_outside(
                plan.checkpoint_path,
                plan.tensorboard_path,
                plan.debugger.path if plan.debugger else "",
                plan.profiler.path if plan.profiler else "",
            ),
            checkpoint=_sync(plan.checkpoint_uri, plan.checkpoint_path),
            tensorboard=_sync(plan.tensorboard_uri, plan.tensorboard_path),
            debugger=_debugger(plan.debugger, job.name),
            profiler=_profiler(plan.profiler),
            warm=self._warm(job),
            doorbell=str(self.context.doorbell or ""),
            node=state.share.node,
        )

    def _container(self, plan: TrainingPlan) -> ContainerSpec:
        """Return the image to run. The engine adds which program runs it, and how."""
        image = self.images.container_of(plan.image) or plan.image
        if plan.command:
            return ContainerSpec(image, entrypoint=plan.command, arguments=())
        return ContainerSpec(image, arguments=plan.arguments or ("train",))

    def _warm(self, job: TrainingJob) -> WarmSpec | None:
        if self.context.warm is None:
            return None
        keep_s = max(job.plan.keep_alive_s, int(self.context.warm_idle.total_seconds()))
        return WarmSpec(str(self.context.warm / job.account), keep_s)


def _launch(plan: TrainingPlan, attempt: Attempt) -> LaunchSpec:
    """Return how processes are launched. Ranks follow the order of the hosts that programs see."""
    launch = plan.launch
    if launch.kind is LaunchKind.SINGLE:
        return LaunchSpec()
    chosen = sorted(host for host in plan.hosts if plan.group_of(host).name in (launch.groups or _names(plan)))
    processes = {host: launch.processes or max(1, len(attempt.instance(host).share.gpus)) for host in chosen}
    return LaunchSpec(launch.kind.value, processes, launch.options, launch.variables)


def _names(plan: TrainingPlan) -> tuple[str, ...]:
    return tuple(group.name for group in plan.hosts_by_group)


def _groups(plan: TrainingPlan) -> list[GroupSpec]:
    return [GroupSpec(each.name, each.instance_type, plan.hosts_by_group[each]) for each in plan.groups]


def _channels(plan: TrainingPlan, contents: Mapping[str, ChannelContents], *, host: str) -> list[ChannelSpec]:
    """Return the channels of a host, with its part of each."""
    sharing = {channel: plan.hosts_of(channel) for channel in plan.channels}
    return [
        channel_spec(channel, contents[channel.name], number=hosts.index(host), count=len(hosts))
        for channel, hosts in sharing.items()
        if host in hosts
    ]


def _sync(uri: str, path: str) -> SyncSpec | None:
    return SyncSpec(uri, path) if uri else None


def _debugger(plan: DebuggerPlan | None, job_name: str) -> DebuggerSpec | None:
    """Return what an agent needs for rules. It gets only the actions that it carries out, and no addresses."""
    if plan is None:
        return None
    rules = [
        RuleSpec(
            each.name,
            each.rule,
            each.parameters,
            [action for action in each.actions if is_done_by_agent(action, job_name)],
            source=each.source,
            is_dry=each.is_dry,
            is_beside=each.is_beside,
        )
        for each in plan.rules
    ]
    return DebuggerSpec(plan.hook, SyncSpec(plan.uri, plan.path), rules)


def _profiler(plan: ProfilerPlan | None) -> ProfilerSpec | None:
    """Return what an agent needs to profile its instance. The yard evaluates the rules."""
    if plan is None:
        return None
    return ProfilerSpec(
        output=SyncSpec(plan.uri, plan.path),
        interval_ms=plan.interval_ms,
        is_exported=plan.is_exported,
        parameters=plan.parameters,
        is_enabled=plan.is_enabled,
    )


def _outside(*paths: str) -> tuple[str, ...]:
    """Return the paths outside /opt/ml, without those inside another one."""
    outside = sorted({path for path in paths if path and not path.startswith("/opt/ml/")})
    return tuple(path for path in outside if not any(path.startswith(f"{other}/") for other in outside))
