"""What each instance of an attempt is told: the plan, its share of the machine and of the data, the credentials."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from trainyard.engines.contract import Engine
from trainyard.engines.file_systems import FileSystems
from trainyard.engines.images import Environment, Images
from trainyard.foundation.jobs import Attempt, DebuggerPlan, InstanceState, Share, TrainingJob, TrainingPlan
from trainyard.foundation.launch_kinds import LaunchKind
from trainyard.link.contract import (
    ENVIRONMENTS_BYTES,
    PROTOCOL,
    SERVED,
    ChannelSpec,
    ContainerSpec,
    DebuggerSpec,
    GroupSpec,
    InstanceSpec,
    LaunchSpec,
    LimitSpec,
    MetricSpec,
    ObjectsSpec,
    ProgramSpec,
    RuleSpec,
    SyncSpec,
    WarmSpec,
)
from trainyard.objects.contract import ObjectStore
from trainyard.server.control.actions.asking import is_of_agent
from trainyard.server.control.channels import Contents, channel_spec, contents_of
from trainyard.server.records.contract import AccessKey

GRACE = timedelta(seconds=120)  # between SIGTERM and SIGKILL, as AWS has it

# Threads count as processes. Data loaders and libraries take some dozens for each core; a fork bomb takes them all.
_LEAST_PROCESSES = 1024
_PROCESSES_PER_CPU = 512


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is the same for every job of a yard."""

    endpoint: str  # by which programs in jobs reach the yard
    objects: ObjectsSpec
    hidden: tuple[Path, ...]  # what no job may see
    environments: Path  # what jobs installed and later ones of the same account use again
    warm: Path | None  # where warm workers are reached, by account; None starts every program cold
    warm_idle: timedelta
    doorbell: Path | None = None  # where agents ring
    hang_after: timedelta = timedelta(minutes=10)  # without output and processor time, stacks are taken
    environments_limit_bytes: int = ENVIRONMENTS_BYTES
    advertised: str = ""  # the endpoint for programs and agents on other machines


@dataclass(frozen=True, slots=True)
class SpecMaker:
    """Makes the specs of an attempt. They are the same however often it is asked, as long as the data is."""

    objects: ObjectStore
    images: Images
    file_systems: FileSystems
    surroundings: Surroundings

    def specs(
        self, job_id: str, job: TrainingJob, attempt: Attempt, *, key: AccessKey, uid: int | None, engine: Engine
    ) -> tuple[InstanceSpec, ...]:
        """One for each instance; InvalidRequest when the data or the environment has gone since the create."""
        contents = {
            each.name: contents_of(self.objects, each, account=job.account, file_systems=self.file_systems)
            for each in job.plan.channels
        }
        container = None if engine.capabilities().images else self._container(job.plan)
        base = Environment("") if container else self.images.environment(job.plan.image)
        environment = {**self._variables(job, key, is_here=engine.is_here), **job.plan.environment}
        objects = self.surroundings.objects if engine.is_here else self._objects(job, key)
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
        contents: Mapping[str, Contents],
        base: Environment,
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
            metrics=[MetricSpec(each.name, each.regex) for each in plan.metrics],
            limits=limits_of(state.share),
            objects=self.surroundings.objects,
            grace_s=int(GRACE.total_seconds()),
            max_runtime_s=max(1, plan.max_runtime_s - int(job.time_used.total_seconds())),
            hang_after_s=int(self.surroundings.hang_after.total_seconds()),
            uid=uid,
            launch=_launch(plan, attempt),
            groups=_groups(plan),
            is_isolated=plan.is_isolated,
            uploads=state.name == plan.hosts[0],
            hidden=[str(path) for path in self.surroundings.hidden],
            environments=str(self.surroundings.environments / job.account),
            environments_limit_bytes=self.surroundings.environments_limit_bytes,
            notes=base.notes,
            extra_paths=_outside(
                plan.checkpoint_path, plan.tensorboard_path, plan.debugger.path if plan.debugger else ""
            ),
            checkpoint=_sync(plan.checkpoint_uri, plan.checkpoint_path),
            tensorboard=_sync(plan.tensorboard_uri, plan.tensorboard_path),
            debugger=_debugger(plan.debugger, job.name),
            warm=self._warm(job),
            doorbell=str(self.surroundings.doorbell or ""),
            node=state.share.node,
        )

    def _container(self, plan: TrainingPlan) -> ContainerSpec:
        """The image that really runs; which program runs it, and how, the engine adds."""
        image = self.images.container_of(plan.image) or plan.image
        if plan.command:
            return ContainerSpec(image, entrypoint=plan.command, arguments=())
        return ContainerSpec(image, arguments=plan.arguments or ("train",))

    def _warm(self, job: TrainingJob) -> WarmSpec | None:
        if self.surroundings.warm is None:
            return None
        keep_s = max(job.plan.keep_alive_s, int(self.surroundings.warm_idle.total_seconds()))
        return WarmSpec(str(self.surroundings.warm / job.account), keep_s)

    def _objects(self, job: TrainingJob, key: AccessKey) -> ObjectsSpec:
        """Where instances on other machines find objects: with the yard, which knows them by the attempt's own key."""
        if self.surroundings.objects.url:
            return self.surroundings.objects
        return replace(
            self.surroundings.objects,
            url=SERVED,
            endpoint=self.surroundings.advertised,
            region=job.region,
            access_key_id=key.id,
            secret_access_key=key.secret,
            session_token=key.session_token or "",
        )

    def _variables(self, job: TrainingJob, key: AccessKey, *, is_here: bool) -> dict[str, str]:
        """By which AWS clients in the job find the yard and speak as the job's role, unless it is cut off from it."""
        always = {
            "AWS_REGION": job.region,
            "AWS_DEFAULT_REGION": job.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        if job.plan.is_isolated:
            return always
        return always | {
            "AWS_ENDPOINT_URL": self.surroundings.endpoint if is_here else self.surroundings.advertised,
            "AWS_ACCESS_KEY_ID": key.id,
            "AWS_SECRET_ACCESS_KEY": key.secret,
            "AWS_SESSION_TOKEN": key.session_token or "",
        }


def _launch(plan: TrainingPlan, attempt: Attempt) -> LaunchSpec:
    """The ranks of a job go through its hosts in the order in which programs are told them."""
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


def _channels(plan: TrainingPlan, contents: Mapping[str, Contents], *, host: str) -> list[ChannelSpec]:
    """The channels of the host's group, with its part of each."""
    sharing = {channel: plan.hosts_of(channel) for channel in plan.channels}
    return [
        channel_spec(channel, contents[channel.name], number=hosts.index(host), count=len(hosts))
        for channel, hosts in sharing.items()
        if host in hosts
    ]


def _sync(uri: str, path: str) -> SyncSpec | None:
    return SyncSpec(uri, path) if uri else None


def _debugger(plan: DebuggerPlan | None, job_name: str) -> DebuggerSpec | None:
    """Of the actions only those that agents carry out themselves: addresses of others are none of theirs."""
    if plan is None:
        return None
    rules = [
        RuleSpec(
            each.name,
            each.rule,
            each.parameters,
            [action for action in each.actions if is_of_agent(action, job_name)],
            source=each.source,
            is_dry=each.is_dry,
            is_beside=each.is_beside,
        )
        for each in plan.rules
    ]
    return DebuggerSpec(plan.hook, SyncSpec(plan.uri, plan.path), rules)


def _outside(*paths: str) -> tuple[str, ...]:
    """The folders outside /opt/ml in which these paths lie: the paths themselves, but for those inside another."""
    outside = sorted({path for path in paths if path and not path.startswith("/opt/ml/")})
    return tuple(path for path in outside if not any(path.startswith(f"{other}/") for other in outside))


def limits_of(share: Share) -> LimitSpec:
    processes = _LEAST_PROCESSES + int(_PROCESSES_PER_CPU * (share.cpus or 0))
    return LimitSpec(cpus=share.cpus, memory_bytes=share.memory_bytes, processes=processes, gpus=share.gpus)
