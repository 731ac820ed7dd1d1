"""Build the CreateTrainingJob request of an estimator, with the members that the sagemaker SDK would send."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard._sdk.training.options import TrainingOptions
from trainyard.debugger import DebuggerHookConfig, ProfilerConfig, ProfilerRule, Rule
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

MODEL_CONTENT_TYPE = "application/x-sagemaker-model"


@dataclass(frozen=True, slots=True)
class ResolvedJob:
    """The values of a job that are known only when it is created: its name, its image, and where its files are."""

    name: str
    image_uri: str
    role_arn: str
    output_path: str
    hyperparameters: Mapping[str, str]
    rules: Sequence[Shape] = ()
    profiler_rules: Sequence[Shape] = ()
    # Set only for jobs without a network, which get their code through a channel.
    code_uri: str | None = None


def require_consistent(options: TrainingOptions, inputs: Inputs | None) -> None:
    """Raise InvalidRequest, in terms of the options, for what no job can do or what would have no effect."""
    require_word("input_mode", options.input_mode, MODES)
    if options.instance_groups and (options.instance_type or options.instance_count != 1):
        raise InvalidRequest(
            "instance_groups have their own types and counts; leave instance_type and instance_count out."
        )
    _require_times(options)
    _require_checkpoints(options)
    _require_rules(options)
    _require_profiler(options)
    _require_model(options, names=[each["ChannelName"] for each in channels(inputs)])


def training_request(options: TrainingOptions, resolved: ResolvedJob, inputs: Inputs | None) -> Shape:
    """Return the members of CreateTrainingJob; options that were not set are left out."""
    request: Shape = {
        "TrainingJobName": resolved.name,
        "AlgorithmSpecification": _algorithm(options, resolved, inputs),
        "OutputDataConfig": _output(options, resolved),
        "ResourceConfig": _resources(options),
        "StoppingCondition": _stopping(options),
        "RoleArn": resolved.role_arn,
    }
    return request | _drop_empty(
        InputDataConfig=_channels(options, resolved, inputs),
        HyperParameters=dict(resolved.hyperparameters),
        Environment=dict(options.environment or {}),
        Tags=tags_of(options),
        VpcConfig=_network(options),
        CheckpointConfig=_checkpoints(options),
        EnableNetworkIsolation=options.enable_network_isolation,
        EnableInterContainerTrafficEncryption=options.encrypt_inter_container_traffic,
        EnableManagedSpotTraining=options.use_spot_instances,
        DebugHookConfig=_hook(options, resolved),
        DebugRuleConfigurations=list(resolved.rules),
        TensorBoardOutputConfig=options.tensorboard_output_config and options.tensorboard_output_config.shape,
        ProfilerConfig=_profiler(options, resolved),
        ProfilerRuleConfigurations=list(resolved.profiler_rules),
        RetryStrategy=_drop_empty(MaximumRetryAttempts=options.max_retry_attempts),
    )


def _require_times(options: TrainingOptions) -> None:
    if not options.use_spot_instances:
        if options.max_wait:
            raise InvalidRequest("max_wait is only for spot jobs; give use_spot_instances=True, or leave it out.")
        return
    if not options.max_wait:
        raise InvalidRequest(
            "use_spot_instances needs max_wait: the limit of waiting and running together, in seconds, at least "
            "max_run."
        )
    if options.max_wait < options.max_run:
        raise InvalidRequest(
            f"max_wait is {options.max_wait} s and max_run {options.max_run} s; max_wait includes max_run, so raise it "
            "or lower max_run."
        )


def _require_checkpoints(options: TrainingOptions) -> None:
    uri, path = options.checkpoint_s3_uri, options.checkpoint_local_path
    if uri:
        _require_on_s3("checkpoint_s3_uri", uri)
    if path and not uri:
        raise InvalidRequest(
            f'checkpoint_local_path is "{path}", but without a checkpoint_s3_uri nothing in it is saved; set one.'
        )
    if path and not path.startswith("/"):
        raise InvalidRequest(f'checkpoint_local_path is "{path}"; it must be absolute, such as /opt/ml/checkpoints.')


def _require_rules(options: TrainingOptions) -> None:
    for rule in options.rules or ():
        if not isinstance(rule, Rule | ProfilerRule):
            raise InvalidRequest(
                f"rules has a {type(rule).__name__}; it takes rules created by Rule.sagemaker, Rule.custom and "
                "ProfilerRule.sagemaker."
            )
    if debugger_rules(options) and options.debugger_hook_config is False:
        raise InvalidRequest(
            "rules evaluate tensors, and debugger_hook_config=False captures none; leave one of them out."
        )


def _require_profiler(options: TrainingOptions) -> None:
    if not options.disable_profiler:
        return
    if options.profiler_config and not options.profiler_config.disable_profiler:
        raise InvalidRequest("disable_profiler and profiler_config contradict each other; leave one of them out.")
    if profiler_rules(options):
        raise InvalidRequest("rules has profiler rules, and disable_profiler=True profiles nothing; leave one out.")


def _require_model(options: TrainingOptions, *, names: Sequence[str]) -> None:
    if not options.model_uri:
        return
    _require_on_s3("model_uri", options.model_uri)
    if options.model_channel_name in names:
        raise InvalidRequest(
            f'The channel "{options.model_channel_name}" is both that of model_uri and one of the inputs; leave one of '
            "them out, or set another model_channel_name."
        )


def _require_on_s3(name: str, uri: str) -> None:
    if not uri.startswith("s3://"):
        raise InvalidRequest(f'{name} is "{uri}"; it must be a location on S3, such as s3://bucket/prefix.')


def _algorithm(options: TrainingOptions, resolved: ResolvedJob, inputs: Inputs | None) -> Shape:
    only = inputs if isinstance(inputs, TrainingInput | FileSystemInput) else None
    # The mode of a single channel is also the mode of the job.
    mode = only.config.get("InputMode") if only else None
    return {"TrainingImage": resolved.image_uri, "TrainingInputMode": mode or options.input_mode} | _drop_empty(
        MetricDefinitions=[dict(definition) for definition in options.metric_definitions or ()],
        EnableSageMakerMetricsTimeSeries=options.enable_sagemaker_metrics,
        ContainerEntrypoint=list(options.container_entry_point or ()),
        ContainerArguments=list(options.container_arguments or ()),
    )


def _output(options: TrainingOptions, resolved: ResolvedJob) -> Shape:
    compression = "NONE" if options.disable_output_compression else None
    return {"S3OutputPath": resolved.output_path} | _drop_empty(
        KmsKeyId=options.output_kms_key, CompressionType=compression
    )


def _resources(options: TrainingOptions) -> Shape:
    one = {"InstanceCount": options.instance_count, "InstanceType": options.instance_type}
    groups = [group.shape for group in options.instance_groups or ()]
    instances = {"InstanceGroups": groups} if groups else one
    return {**instances, "VolumeSizeInGB": options.volume_size} | _drop_empty(
        VolumeKmsKeyId=options.volume_kms_key, KeepAlivePeriodInSeconds=options.keep_alive_period_in_seconds
    )


def _stopping(options: TrainingOptions) -> Shape:
    return {"MaxRuntimeInSeconds": options.max_run} | _drop_empty(MaxWaitTimeInSeconds=options.max_wait)


def _channels(options: TrainingOptions, resolved: ResolvedJob, inputs: Inputs | None) -> list[Shape]:
    found = channels(inputs)
    if options.model_uri:
        model = TrainingInput(options.model_uri, content_type=MODEL_CONTENT_TYPE, input_mode="File")
        found.append(channel(options.model_channel_name, model))
    if resolved.code_uri:
        # An archive cannot be unpacked from a pipe.
        mode = None if options.input_mode == "File" else "File"
        found.append(channel("code", TrainingInput(resolved.code_uri, input_mode=mode)))
    return found


def tags_of(options: TrainingOptions) -> list[Shape]:
    """Return the tags of a job, including the tag that names its engine."""
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


def _hook(options: TrainingOptions, resolved: ResolvedJob) -> Shape | None:
    """Return the hook configuration where rules or a configuration ask for one; other jobs have no hook."""
    config, rules = options.debugger_hook_config, debugger_rules(options)
    if config is False or (config is None and not rules):
        return None
    chosen = config if isinstance(config, DebuggerHookConfig) else DebuggerHookConfig()
    return chosen.shape(resolved.output_path, rules)


def debugger_rules(options: TrainingOptions) -> list[Rule]:
    """Return the rules that evaluate tensors."""
    return [rule for rule in options.rules or () if isinstance(rule, Rule)]


def profiler_rules(options: TrainingOptions) -> list[ProfilerRule]:
    """Return the rules that evaluate profiles."""
    return [rule for rule in options.rules or () if isinstance(rule, ProfilerRule)]


def _profiler(options: TrainingOptions, resolved: ResolvedJob) -> Shape | None:
    """Return the profiler's configuration where one or a profiler rule asks for it; others are left to the yard."""
    config = options.profiler_config
    if config is None and resolved.profiler_rules:
        config = ProfilerConfig()
    if config is None:
        return {"DisableProfiler": True} if options.disable_profiler else None
    return config.shape(resolved.output_path)


def _checkpoints(options: TrainingOptions) -> Shape | None:
    if not options.checkpoint_s3_uri:
        return None
    return {"S3Uri": options.checkpoint_s3_uri} | _drop_empty(LocalPath=options.checkpoint_local_path)


def _drop_empty(**members: Any) -> Shape:
    return {name: value for name, value in members.items() if value}
