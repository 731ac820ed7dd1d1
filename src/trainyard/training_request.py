"""What can be asked of a training job, and the CreateTrainingJob request that asks it as the sagemaker SDK would."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from trainyard.debugger import DebuggerHookConfig, Rule, TensorBoardOutputConfig
from trainyard.foundation.engine_names import ENGINE_TAG
from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import (
    MODES,
    FileSystemInput,
    Inputs,
    Shape,
    TrainingInput,
    channel,
    channels,
    require_word,
)
from trainyard.instance_group import InstanceGroup
from trainyard.session import Session

Tags = Sequence[Mapping[str, str]] | Mapping[str, str]

MODEL_CONTENT_TYPE = "application/x-sagemaker-model"


class LaterKeywords(TypedDict, total=False):
    """What nobody gives by position."""

    rules: Sequence[Rule] | None
    debugger_hook_config: DebuggerHookConfig | bool | None
    tensorboard_output_config: TensorBoardOutputConfig | None
    disable_profiler: bool
    enable_sagemaker_metrics: bool | None
    environment: Mapping[str, str] | None
    max_retry_attempts: int | None
    container_log_level: int
    code_location: str | None
    dependencies: Sequence[str] | None
    container_entry_point: Sequence[str] | None
    container_arguments: Sequence[str] | None
    disable_output_compression: bool
    instance_groups: Sequence[InstanceGroup] | None
    engine: str | None


class TrainingKeywords(LaterKeywords, total=False):
    """The fields of TrainingOptions, for those who hand keywords on."""

    role: str | None
    instance_count: int
    instance_type: str | None
    keep_alive_period_in_seconds: int | None
    volume_size: int
    volume_kms_key: str | None
    max_run: int
    input_mode: str
    output_path: str | None
    output_kms_key: str | None
    base_job_name: str | None
    sagemaker_session: Session | None
    tags: Tags | None
    subnets: Sequence[str] | None
    security_group_ids: Sequence[str] | None
    model_uri: str | None
    model_channel_name: str
    metric_definitions: Sequence[Mapping[str, str]] | None
    encrypt_inter_container_traffic: bool
    use_spot_instances: bool
    max_wait: int | None
    checkpoint_s3_uri: str | None
    checkpoint_local_path: str | None
    enable_network_isolation: bool


@dataclass(kw_only=True, eq=False)
class TrainingOptions:
    """What every estimator can say of its jobs besides the code, the image and the hyperparameters.

    May be changed between one job and the next.
    """

    role: str | None = None
    instance_count: int = 1
    instance_type: str | None = None
    keep_alive_period_in_seconds: int | None = None
    volume_size: int = 30
    volume_kms_key: str | None = None
    max_run: int = 24 * 60 * 60
    input_mode: str = "File"
    output_path: str | None = None
    output_kms_key: str | None = None
    base_job_name: str | None = None
    sagemaker_session: Session | None = None
    tags: Tags | None = None
    subnets: Sequence[str] | None = None
    security_group_ids: Sequence[str] | None = None
    model_uri: str | None = None
    model_channel_name: str = "model"
    metric_definitions: Sequence[Mapping[str, str]] | None = None
    encrypt_inter_container_traffic: bool = False
    use_spot_instances: bool = False
    max_wait: int | None = None
    checkpoint_s3_uri: str | None = None
    checkpoint_local_path: str | None = None
    enable_network_isolation: bool = False
    rules: Sequence[Rule] | None = None
    debugger_hook_config: DebuggerHookConfig | bool | None = None
    tensorboard_output_config: TensorBoardOutputConfig | None = None
    disable_profiler: bool = False
    enable_sagemaker_metrics: bool | None = None
    environment: Mapping[str, str] | None = None
    max_retry_attempts: int | None = None
    container_log_level: int = 20
    code_location: str | None = None
    dependencies: Sequence[str] | None = None
    container_entry_point: Sequence[str] | None = None
    container_arguments: Sequence[str] | None = None
    disable_output_compression: bool = False
    instance_groups: Sequence[InstanceGroup] | None = None
    engine: str | None = None  # of the yard's, by its name; otherwise the yard's rules choose one


@dataclass(frozen=True, slots=True)
class Placed:
    """What is known of a job only when it is asked for."""

    name: str
    image_uri: str
    role_arn: str
    output_path: str
    hyperparameters: Mapping[str, str]
    rules: Sequence[Shape] = ()  # as the request asks for them
    code_uri: str | None = None  # where the code must come through a channel


def require_consistent(options: TrainingOptions, inputs: Inputs | None) -> None:
    """InvalidRequest, in the words of the options, for what no job could do or what would do nothing."""
    require_word("input_mode", options.input_mode, MODES)
    if options.instance_groups and (options.instance_type or options.instance_count != 1):
        raise InvalidRequest(
            "instance_groups have types and counts of their own; leave instance_type and instance_count out."
        )
    _require_times(options)
    _require_checkpoints(options)
    _require_rules(options)
    _require_model(options, names=[each["ChannelName"] for each in channels(inputs)])


def training_request(options: TrainingOptions, placed: Placed, inputs: Inputs | None) -> Shape:
    """The members of CreateTrainingJob; what was not asked for is not there."""
    request: Shape = {
        "TrainingJobName": placed.name,
        "AlgorithmSpecification": _algorithm(options, placed, inputs),
        "OutputDataConfig": _output(options, placed),
        "ResourceConfig": _resources(options),
        "StoppingCondition": _stopping(options),
        "RoleArn": placed.role_arn,
    }
    return request | _given(
        InputDataConfig=_channels(options, placed, inputs),
        HyperParameters=dict(placed.hyperparameters),
        Environment=dict(options.environment or {}),
        Tags=tags_of(options),
        VpcConfig=_network(options),
        CheckpointConfig=_checkpoints(options),
        EnableNetworkIsolation=options.enable_network_isolation,
        EnableInterContainerTrafficEncryption=options.encrypt_inter_container_traffic,
        EnableManagedSpotTraining=options.use_spot_instances,
        DebugHookConfig=_hook(options, placed),
        DebugRuleConfigurations=list(placed.rules),
        TensorBoardOutputConfig=options.tensorboard_output_config and options.tensorboard_output_config.shape,
        ProfilerConfig={"DisableProfiler": True} if options.disable_profiler else None,
        RetryStrategy=_given(MaximumRetryAttempts=options.max_retry_attempts),
    )


def _require_times(options: TrainingOptions) -> None:
    if not options.use_spot_instances:
        if options.max_wait:
            raise InvalidRequest("max_wait is only for spot jobs; give use_spot_instances=True, or leave it out.")
        return
    if not options.max_wait:
        raise InvalidRequest(
            "use_spot_instances needs max_wait: how many seconds waiting and running may take together, at least as "
            "many as max_run."
        )
    if options.max_wait < options.max_run:
        raise InvalidRequest(
            f"max_wait is {options.max_wait} s and max_run {options.max_run} s; max_wait includes the run, so raise it "
            "or lower max_run."
        )


def _require_checkpoints(options: TrainingOptions) -> None:
    uri, path = options.checkpoint_s3_uri, options.checkpoint_local_path
    if uri:
        _require_on_s3("checkpoint_s3_uri", uri)
    if path and not uri:
        raise InvalidRequest(
            f'checkpoint_local_path is "{path}", but without a checkpoint_s3_uri nothing in it is kept; give one.'
        )
    if path and not path.startswith("/"):
        raise InvalidRequest(f'checkpoint_local_path is "{path}"; it must be absolute, such as /opt/ml/checkpoints.')


def _require_rules(options: TrainingOptions) -> None:
    for rule in options.rules or ():
        if not isinstance(rule, Rule):
            raise InvalidRequest(
                f"rules has a {type(rule).__name__}; it takes those that Rule.sagemaker and Rule.custom make."
            )
    if options.rules and options.debugger_hook_config is False:
        raise InvalidRequest(
            "rules judge tensors, which debugger_hook_config=False keeps from being captured; leave one of them out."
        )


def _require_model(options: TrainingOptions, *, names: Sequence[str]) -> None:
    if not options.model_uri:
        return
    _require_on_s3("model_uri", options.model_uri)
    if options.model_channel_name in names:
        raise InvalidRequest(
            f'The model of model_uri comes as the channel "{options.model_channel_name}", which is also one of the '
            "inputs; leave one of them out, or give another model_channel_name."
        )


def _require_on_s3(name: str, uri: str) -> None:
    if not uri.startswith("s3://"):
        raise InvalidRequest(f'{name} is "{uri}"; it must be a location on S3, such as s3://bucket/prefix.')


def _algorithm(options: TrainingOptions, placed: Placed, inputs: Inputs | None) -> Shape:
    only = inputs if isinstance(inputs, TrainingInput | FileSystemInput) else None
    mode = only.config.get("InputMode") if only else None  # the mode of the only channel is that of the job
    return {"TrainingImage": placed.image_uri, "TrainingInputMode": mode or options.input_mode} | _given(
        MetricDefinitions=[dict(definition) for definition in options.metric_definitions or ()],
        EnableSageMakerMetricsTimeSeries=options.enable_sagemaker_metrics,
        ContainerEntrypoint=list(options.container_entry_point or ()),
        ContainerArguments=list(options.container_arguments or ()),
    )


def _output(options: TrainingOptions, placed: Placed) -> Shape:
    compression = "NONE" if options.disable_output_compression else None
    return {"S3OutputPath": placed.output_path} | _given(KmsKeyId=options.output_kms_key, CompressionType=compression)


def _resources(options: TrainingOptions) -> Shape:
    one = {"InstanceCount": options.instance_count, "InstanceType": options.instance_type}
    groups = [group.shape for group in options.instance_groups or ()]
    instances = {"InstanceGroups": groups} if groups else one
    return {**instances, "VolumeSizeInGB": options.volume_size} | _given(
        VolumeKmsKeyId=options.volume_kms_key, KeepAlivePeriodInSeconds=options.keep_alive_period_in_seconds
    )


def _stopping(options: TrainingOptions) -> Shape:
    return {"MaxRuntimeInSeconds": options.max_run} | _given(MaxWaitTimeInSeconds=options.max_wait)


def _channels(options: TrainingOptions, placed: Placed, inputs: Inputs | None) -> list[Shape]:
    found = channels(inputs)
    if options.model_uri:
        model = TrainingInput(options.model_uri, content_type=MODEL_CONTENT_TYPE, input_mode="File")
        found.append(channel(options.model_channel_name, model))
    if placed.code_uri:
        mode = None if options.input_mode == "File" else "File"  # an archive cannot be run from a pipe
        found.append(channel("code", TrainingInput(placed.code_uri, input_mode=mode)))
    return found


def tags_of(options: TrainingOptions) -> list[Shape]:
    """The tags of a job; that which names its engine is one of them."""
    tags = options.tags
    listed = (
        [{"Key": key, "Value": tags[key]} for key in tags] if isinstance(tags, Mapping) else [*map(dict, tags or ())]
    )
    if options.engine is None:
        return listed
    others = [tag for tag in listed if tag["Key"] != ENGINE_TAG]
    return [*others, {"Key": ENGINE_TAG, "Value": options.engine}]


def _network(options: TrainingOptions) -> Shape | None:
    if not options.subnets or not options.security_group_ids:
        return None
    return {"Subnets": list(options.subnets), "SecurityGroupIds": list(options.security_group_ids)}


def _hook(options: TrainingOptions, placed: Placed) -> Shape | None:
    """Asked for where there are rules or a configuration; a job of which nobody asked that is left alone."""
    config, rules = options.debugger_hook_config, options.rules or ()
    if config is False or (config is None and not rules):
        return None
    chosen = config if isinstance(config, DebuggerHookConfig) else DebuggerHookConfig()
    return chosen.shape(placed.output_path, rules)


def _checkpoints(options: TrainingOptions) -> Shape | None:
    if not options.checkpoint_s3_uri:
        return None
    return {"S3Uri": options.checkpoint_s3_uri} | _given(LocalPath=options.checkpoint_local_path)


def _given(**members: Any) -> Shape:
    return {name: value for name, value in members.items() if value}
