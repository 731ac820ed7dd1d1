"""The options that every estimator takes: their names, types, defaults and descriptions, spelled here only."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from trainyard.debugger import DebuggerHookConfig, ProfilerConfig, ProfilerRule, Rule, TensorBoardOutputConfig
from trainyard.instance_group import InstanceGroup
from trainyard.session import Session

Tags = Sequence[Mapping[str, str]] | Mapping[str, str]


@dataclass(kw_only=True, eq=False)
class TrainingOptions:
    """The options of a training job that do not depend on the kind of estimator.

    Every option is also an attribute of the estimator and can be changed between two jobs.

    Args:
        role: Name or ARN of the role that the job runs with. Default: the role of the caller.
        instance_count: Number of instances.
        instance_type: Type of the instances, such as `ml.m5.large`.
        keep_alive_period_in_seconds: How long the instances stay in a warm pool after the job has ended.
        volume_size: Size of the volume of each instance, in GB.
        volume_kms_key: KMS key for the volumes. Refused unless the yard's disks are stated to be encrypted.
        max_run: Time limit of the job, in seconds.
        input_mode: How channels are delivered: `File`, `FastFile` or `Pipe`. A `TrainingInput` can override it.
        output_path: S3 location of the model and the other outputs. Default: the default bucket of the session.
        output_kms_key: KMS key, by id, ARN or alias, that encrypts everything the job stores.
        base_job_name: Prefix of generated job names. Default: the name of the image.
        sagemaker_session: The session to use. Default: a new `Session()`, created at the first call.
        tags: Tags of the job: a mapping, or a list of `{"Key": …, "Value": …}`.
        subnets: Subnets of the job. The request includes them only together with `security_group_ids`.
        security_group_ids: Security groups of the job. The request includes them only together with `subnets`.
        model_uri: S3 location of a model to start from; the job gets it as a channel.
        model_channel_name: Name of the channel of `model_uri`.
        metric_definitions: Metrics to read from the log: a list of `{"Name": …, "Regex": …}`.
        encrypt_inter_container_traffic: Whether to encrypt the traffic between instances.
        use_spot_instances: Whether the job may be interrupted; needs `max_wait`.
        max_wait: For spot jobs: limit of waiting and running together, in seconds; at least `max_run`.
        checkpoint_s3_uri: S3 location with which the checkpoint folder of the job is synced.
        checkpoint_local_path: The checkpoint folder. Default: `/opt/ml/checkpoints`.
        enable_network_isolation: Whether to run the job without any network.
        rules: Rules to evaluate, created by `Rule.sagemaker`, `Rule.custom` or `ProfilerRule.sagemaker`. Default: with
            a `profiler_config`, the rule that writes a report.
        debugger_hook_config: Which tensors to capture. `False` captures none. Default: what `rules` need.
        tensorboard_output_config: Where to write what TensorBoard reads.
        profiler_config: What to profile, how often, and where to store it. Default: the yard keeps samples of the
            hardware and the times of steps, and stores nothing on S3.
        disable_profiler: Whether to run the job without the profiler.
        enable_sagemaker_metrics: Whether to keep the time series of the metrics. Default: left to the yard.
        environment: Environment variables of the script.
        max_retry_attempts: How often to retry the job after an internal failure.
        container_log_level: Log level of the SageMaker toolkit in the job, as `logging` numbers them.
        code_location: S3 location for the uploaded code. Default: the bucket of the output.
        dependencies: Local files and folders to pack next to the script.
        container_entry_point: Entry point that replaces that of the image.
        container_arguments: Arguments of the entry point.
        disable_output_compression: Whether to store the outputs as single objects instead of one archive.
        instance_groups: Groups of instances of different types, instead of `instance_type` and `instance_count`.
        engine: Name of the engine that runs the job. Default: the rules of the yard choose one.
        include_local_modules: Without `source_dir`: whether to pack the `requirements.txt` beside the script, and the
            modules beside it that it imports.
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
    rules: Sequence[Rule | ProfilerRule] | None = None
    debugger_hook_config: DebuggerHookConfig | bool | None = None
    tensorboard_output_config: TensorBoardOutputConfig | None = None
    profiler_config: ProfilerConfig | None = None
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
    engine: str | None = None
    include_local_modules: bool = False


_NAMES = tuple(field.name for field in fields(TrainingOptions))
_SESSION = _NAMES.index("sagemaker_session") + 1
_LAST_POSITIONAL = _NAMES.index("enable_network_isolation") + 1

# What the sagemaker SDK's `Estimator` takes by position after the image, in its order.
POSITIONAL = (*_NAMES[:_SESSION], "hyperparameters", *_NAMES[_SESSION:_LAST_POSITIONAL])


def full_signature(init: Callable[..., None]) -> inspect.Signature:
    """Return the signature of a constructor, with each option in place of `**options`.

    Notebooks and `help` show it. `*positional` stands for the options that `Estimator` takes by position.
    """
    own = list(inspect.signature(init).parameters.values())[1:]
    takes_positional = any(each.kind is each.VAR_POSITIONAL for each in own)
    given = {each.name: each for each in own}
    options = inspect.signature(TrainingOptions).parameters
    by_position = [
        (given.get(name) or options[name]).replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in (POSITIONAL if takes_positional else ())
    ]
    placed = {each.name for each in by_position}
    leading = [each for each in own if each.kind is each.POSITIONAL_OR_KEYWORD]
    keywords = [each for each in own if each.kind is each.KEYWORD_ONLY and each.name not in placed]
    if any(each.kind is each.VAR_KEYWORD for each in own):
        keywords += [each for name, each in options.items() if name not in placed | given.keys()]
    return inspect.Signature([*leading, *by_position, *keywords])


def name_positional(called: type, values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values given by position under their names; TypeError for too many, or for one given twice."""
    if len(values) > len(POSITIONAL):
        most, count = len(POSITIONAL) + 1, len(values) + 1
        raise TypeError(f"{called.__name__}() takes at most {most} positional arguments, but {count} were given")
    named = dict(zip(POSITIONAL, values, strict=False))
    for name in named:
        if options.get(name) is not None:
            raise TypeError(f'{called.__name__}() got multiple values for argument "{name}"')
    return named


def require_known(called: type, options: Mapping[str, Any]) -> None:
    """Raise TypeError for a keyword that is no option; the message names the class that the user called."""
    unknown = next((name for name in options if name not in _NAMES), None)
    if unknown is None:
        return
    # Imported here: only a mistake needs it.
    from difflib import get_close_matches

    near = get_close_matches(unknown, inspect.signature(called).parameters, 1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    raise TypeError(f'{called.__name__}() got an unexpected keyword argument "{unknown}"{hint}')
