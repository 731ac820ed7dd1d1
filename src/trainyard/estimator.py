"""Training as one object: what to run, on what, with which data; `fit` makes a training job of it."""

import hashlib
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, Unpack

from trainyard import image_uris
from trainyard.debugger import DebuggerHookConfig, Rule, TensorBoardOutputConfig
from trainyard.distribution import Distribution, launcher_hyperparameters
from trainyard.following import Description
from trainyard.foundation.engine_names import ENGINE_TAG
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import parse_s3_uri
from trainyard.inputs import Inputs, Shape
from trainyard.instance_group import InstanceGroup
from trainyard.job_names import base_of, base_of_image, create_named
from trainyard.session import Session, get_execution_role
from trainyard.source_code import ARCHIVE, pack
from trainyard.training_job import TrainingJob, hyperparameter
from trainyard.training_request import (
    LaterKeywords,
    Placed,
    Tags,
    TrainingKeywords,
    TrainingOptions,
    require_consistent,
    training_request,
)
from trainyard.transfers import joined
from trainyard.wire.client import CallFailed

Hyperparameters = Mapping[str, Any]

_LOG_LEVEL = "sagemaker_container_log_level"
_ISOLATED_CODE = f"/opt/ml/input/data/code/{ARCHIVE}"  # where a job without a network finds its code


class EstimatorBase(TrainingOptions, ABC):
    """What every estimator does. Making one asks the yard nothing; `fit` does."""

    def __init__(
        self,
        entry_point: str | None,
        source_dir: str | None,
        hyperparameters: Hyperparameters | None,
        **options: Unpack[TrainingKeywords],
    ) -> None:
        super().__init__(**options)
        self.entry_point, self.source_dir = entry_point, source_dir
        self.latest_training_job: TrainingJob | None = None
        self._hyperparameters: dict[str, Any] = dict(hyperparameters or {})

    @abstractmethod
    def training_image_uri(self) -> str:
        """The image that stands for the environment of the job."""

    def hyperparameters(self) -> dict[str, Any]:
        """The hyperparameters of the next job: JSON texts where a script reads them."""
        if not self.entry_point:
            return dict(self._hyperparameters)
        return {name: json.dumps(value) for name, value in self._hyperparameters.items()}

    def set_hyperparameters(self, **values: Any) -> None:
        """Set some hyperparameters and leave the others."""
        self._hyperparameters.update(values)

    def fit(
        self,
        inputs: Inputs | None = None,
        wait: bool = True,
        logs: str | bool | Sequence[str] = "All",
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
    ) -> None:
        """Make a training job, and wait for its end unless told not to, showing what it writes.

        `logs` is which lines to show: "All", "Training", "Rules" or "None", several of these, or whether any. Anything
        but Completed raises UnexpectedStatusException with the name of the job and the reason.
        """
        shows_lines = _shows_lines(logs)

        def create(name: str) -> None:
            request = self.request_of(name, inputs)
            if experiment_config:
                request["ExperimentConfig"] = dict(experiment_config)
            self.session.api.call("sagemaker", "CreateTrainingJob", **request)

        if job_name:
            create(job_name)
        name = job_name or create_named(self.base_job_name or base_of_image(self.training_image_uri()), create)
        self.latest_training_job = TrainingJob(self.session.api, name)
        if wait:
            self.latest_training_job.wait(logs=shows_lines)

    def request_of(self, name: str, inputs: Inputs | None = None) -> Shape:
        """The CreateTrainingJob request of a job of that name; its code is brought to S3 for it."""
        require_consistent(self, inputs)
        return training_request(self, self._placed(name), inputs)

    def logs(self) -> None:
        """Show what the latest job writes until it has ended."""
        self._latest().logs()

    def enable_default_profiling(self) -> None:
        """Let the latest job, which must be running, be profiled as jobs are by default."""
        self._latest().update(ProfilerConfig={"S3OutputPath": self._output_path(), "DisableProfiler": False})

    def disable_profiling(self) -> None:
        """Let the latest job, which must be running, no longer be profiled."""
        self._latest().update(ProfilerConfig={"DisableProfiler": True})

    def update_profiler(
        self,
        *,
        system_monitor_interval_millis: int | None = None,
        s3_output_path: str | None = None,
        disable_framework_metrics: bool = False,
    ) -> None:
        """Change how the latest job, which must be running, is profiled; what is not given stays as it is."""
        asked = {"ProfilingIntervalInMilliseconds": system_monitor_interval_millis, "S3OutputPath": s3_output_path}
        changes: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        if disable_framework_metrics:
            changes["ProfilingParameters"] = {}
        if not changes:
            raise InvalidRequest("update_profiler was given nothing to change.")
        self._latest().update(ProfilerConfig=changes)

    def latest_job_debugger_artifacts_path(self) -> str:
        """Where the tensors of the latest job are."""
        return self._artifacts("DebugHookConfig", "debug-output", option="debugger_hook_config")

    def latest_job_tensorboard_artifacts_path(self) -> str:
        """Where TensorBoard finds what the latest job wrote."""
        return self._artifacts("TensorBoardOutputConfig", "tensorboard-output", option="tensorboard_output_config")

    @property
    def model_data(self) -> str:
        """Where the model of the latest job is."""
        description = self._latest().describe()
        uri: str | None = description["ModelArtifacts"].get("S3ModelArtifacts")
        name, status = description["TrainingJobName"], description["TrainingJobStatus"]
        if not uri or status not in ("Completed", "Stopped"):
            raise InvalidRequest(f'Training job "{name}" is {status} and has no model.')
        return uri

    @property
    def session(self) -> Session:
        """The session given, else one that is made now."""
        self.sagemaker_session = self.sagemaker_session or Session()
        return self.sagemaker_session

    @classmethod
    def attach(
        cls, training_job_name: str, sagemaker_session: Session | None = None, model_channel_name: str = "model"
    ) -> Self:
        """The estimator that could have made a job. Waits for the job's end, however it ends."""
        session = sagemaker_session or Session()
        job = TrainingJob(session.api, training_job_name)
        description = job.wait_for_end()
        estimator = cls.described(description, session, model_channel_name=model_channel_name)
        tags = session.api.call("sagemaker", "ListTags", ResourceArn=description["TrainingJobArn"])["Tags"]
        estimator.engine = next((tag["Value"] for tag in tags if tag["Key"] == ENGINE_TAG), None)
        estimator.tags = [tag for tag in tags if tag["Key"] != ENGINE_TAG]
        estimator.latest_training_job = job
        return estimator

    @classmethod
    def described(cls, description: Description, session: Session, *, model_channel_name: str = "model") -> Self:
        """The estimator of a description, which need not be that of a job that there is."""
        options = _options_of(description, model_channel_name)
        options["sagemaker_session"] = session
        return cls._of_description(description, options)

    @classmethod
    @abstractmethod
    def _of_description(cls, description: Description, options: TrainingKeywords) -> Self:
        """An estimator of this class, as far as a description tells of it."""

    def _launch_hyperparameters(self, job_name: str) -> dict[str, Any]:  # noqa: ARG002 - for those who have some
        """What tells the launcher of the processes its ways; not encoded yet."""
        return {}

    def _latest(self) -> TrainingJob:
        if self.latest_training_job is None:
            raise InvalidRequest("This estimator has no training job yet; call fit first.")
        return self.latest_training_job

    def _artifacts(self, member: str, folder: str, *, option: str) -> str:
        description = self._latest().describe()
        if member not in description:
            name = description["TrainingJobName"]
            raise InvalidRequest(f'Training job "{name}" was made without a {option}; give one to the estimator.')
        return f"{description[member]['S3OutputPath'].rstrip('/')}/{description['TrainingJobName']}/{folder}"

    def _output_path(self) -> str:
        if self.output_path is not None:
            return self.output_path
        return f"s3://{joined(self.session.default_bucket(), self.session.default_bucket_prefix or '')}/"

    def _placed(self, name: str) -> Placed:
        launch = self._launch_hyperparameters(name)  # before anything is brought to S3 for what cannot be launched
        code = self._bring_code(name)
        hyperparameters = {key: str(value) for key, value in self.hyperparameters().items()}
        more = (self._script_hyperparameters(name, code) if code else {}) | launch
        return Placed(
            name,
            self.training_image_uri(),
            self.session.expand_role(self.role) if self.role else get_execution_role(self.session),
            self._output_path(),
            hyperparameters | {key: json.dumps(value) for key, value in more.items()},
            rules=self._rules(name),
            code_uri=code.uri if code and self.enable_network_isolation else None,
        )

    def _rules(self, name: str) -> list[dict[str, Any]]:
        """The rules as a request asks for them, with the files of those of one's own on S3."""
        built_in = image_uris.retrieve("debugger", self.session.boto_region_name) if self.rules else ""
        return [rule.shape(name, image_uri=built_in, source_uri=self._bring_rule(rule)) for rule in self.rules or ()]

    def _bring_rule(self, rule: Rule) -> str:
        if not rule.source or rule.source.startswith("s3://"):
            return rule.source
        session = self.session
        prefix = joined(session.default_bucket_prefix or "", rule.name, str(uuid.uuid4()))
        return session.upload_data(rule.source, bucket=session.default_bucket(), key_prefix=prefix)

    def _bring_code(self, name: str) -> "_Code | None":
        if not self.entry_point:
            return None
        if self.source_dir and self.source_dir.startswith("s3://"):
            return _Code(self.source_dir, self.entry_point)
        packed = pack(self.entry_point, self.source_dir, self.dependencies or ())
        bucket, prefix = self._code_place()
        return _Code(self._bring_archive(packed.archive, bucket, joined(prefix, name, "source")), packed.script)

    def _bring_archive(self, archive: bytes, bucket: str, prefix: str) -> str:
        """Store the code below a prefix that only jobs of one name use, and return where it is.

        Where a job of that name has its code, it keeps it: it may be waiting, or be started again. Another code lies
        beside it, by its digest.
        """
        put = {"Bucket": bucket, "Body": archive}
        key = joined(prefix, ARCHIVE)
        try:
            self.session.api.call("s3", "PutObject", **put, Key=key, IfNoneMatch="*")
        except CallFailed as error:
            if error.status != 412:
                raise
            key = joined(prefix, hashlib.sha256(archive).hexdigest(), ARCHIVE)
            self.session.api.call("s3", "PutObject", **put, Key=key)
        return f"s3://{bucket}/{key}"

    def _code_place(self) -> tuple[str, str]:
        """A bucket and a prefix; of an output path that was asked for, only the bucket is used."""
        place = parse_s3_uri(self.code_location or self._output_path(), account="")
        return place.bucket.name, place.key if self.code_location or self.output_path is None else ""

    def _script_hyperparameters(self, name: str, code: "_Code") -> dict[str, Any]:
        return {
            "sagemaker_submit_directory": _ISOLATED_CODE if self.enable_network_isolation else code.uri,
            "sagemaker_program": code.script,
            _LOG_LEVEL: self.container_log_level,
            "sagemaker_job_name": name,
            "sagemaker_region": self.session.boto_region_name,
        }


class Estimator(EstimatorBase):
    """Trains with the image given: a built-in algorithm, or a script of one's own where there is an `entry_point`.

    The order of the parameters is that of the sagemaker SDK as far as it may matter, up to `enable_network_isolation`.
    """

    def __init__(
        self,
        image_uri: str,
        role: str | None = None,
        instance_count: int = 1,
        instance_type: str | None = None,
        keep_alive_period_in_seconds: int | None = None,
        volume_size: int = 30,
        volume_kms_key: str | None = None,
        max_run: int = 24 * 60 * 60,
        input_mode: str = "File",
        output_path: str | None = None,
        output_kms_key: str | None = None,
        base_job_name: str | None = None,
        sagemaker_session: Session | None = None,
        hyperparameters: Hyperparameters | None = None,
        tags: Tags | None = None,
        subnets: Sequence[str] | None = None,
        security_group_ids: Sequence[str] | None = None,
        model_uri: str | None = None,
        model_channel_name: str = "model",
        metric_definitions: Sequence[Mapping[str, str]] | None = None,
        encrypt_inter_container_traffic: bool = False,
        use_spot_instances: bool = False,
        max_wait: int | None = None,
        checkpoint_s3_uri: str | None = None,
        checkpoint_local_path: str | None = None,
        enable_network_isolation: bool = False,
        *,
        entry_point: str | None = None,
        source_dir: str | None = None,
        **options: Unpack[LaterKeywords],
    ) -> None:
        super().__init__(
            entry_point,
            source_dir,
            hyperparameters,
            role=role,
            instance_count=instance_count,
            instance_type=instance_type,
            keep_alive_period_in_seconds=keep_alive_period_in_seconds,
            volume_size=volume_size,
            volume_kms_key=volume_kms_key,
            max_run=max_run,
            input_mode=input_mode,
            output_path=output_path,
            output_kms_key=output_kms_key,
            base_job_name=base_job_name,
            sagemaker_session=sagemaker_session,
            tags=tags,
            subnets=subnets,
            security_group_ids=security_group_ids,
            model_uri=model_uri,
            model_channel_name=model_channel_name,
            metric_definitions=metric_definitions,
            encrypt_inter_container_traffic=encrypt_inter_container_traffic,
            use_spot_instances=use_spot_instances,
            max_wait=max_wait,
            checkpoint_s3_uri=checkpoint_s3_uri,
            checkpoint_local_path=checkpoint_local_path,
            enable_network_isolation=enable_network_isolation,
            **options,
        )
        self.image_uri = image_uri

    def training_image_uri(self) -> str:
        return self.image_uri

    @classmethod
    def _of_description(cls, description: Description, options: TrainingKeywords) -> Self:
        script = _script_of(description)
        return cls(
            description["AlgorithmSpecification"]["TrainingImage"],
            hyperparameters=script.hyperparameters,
            entry_point=script.entry_point,
            source_dir=script.source_dir,
            **options,
        )


class Framework(EstimatorBase):
    """Trains a script of one's own in the environment of a framework."""

    framework: ClassVar[str]

    def __init__(
        self,
        entry_point: str | None = None,
        source_dir: str | None = None,
        hyperparameters: Hyperparameters | None = None,
        *,
        framework_version: str | None = None,
        py_version: str | None = None,
        image_uri: str | None = None,
        distribution: Distribution | None = None,
        **options: Unpack[TrainingKeywords],
    ) -> None:
        if not entry_point:
            raise InvalidRequest(f"{type(self).__name__} needs an entry_point: the script to run.")
        super().__init__(entry_point, source_dir, hyperparameters, **options)
        self.framework_version, self.py_version = framework_version, py_version
        self.image_uri, self.distribution = image_uri, distribution

    def training_image_uri(self) -> str:
        if self.image_uri:
            return self.image_uri
        region, version = self.session.boto_region_name, self.framework_version
        return image_uris.retrieve(self.framework, region, version, self.py_version, self._type_of_image())

    def _type_of_image(self) -> str | None:
        """The instance type that decides whether it is an image for GPUs: of groups, the first that has some."""
        types = [group.instance_type for group in self.instance_groups or ()]
        with_gpus = (each for each in types if each.startswith(("ml.g", "ml.p")))
        return self.instance_type or next(with_gpus, types[0] if types else None)

    def _launch_hyperparameters(self, job_name: str) -> dict[str, Any]:  # noqa: ARG002 - for those who need it
        return launcher_hyperparameters(self.distribution, self.instance_type, groups=self.instance_groups or ())

    @classmethod
    def _of_description(cls, description: Description, options: TrainingKeywords) -> Self:
        script = _script_of(description)
        return cls(
            entry_point=script.entry_point,
            source_dir=script.source_dir,
            hyperparameters=script.hyperparameters,
            image_uri=description["AlgorithmSpecification"]["TrainingImage"],
            **options,
        )


@dataclass(frozen=True, slots=True)
class _Code:
    uri: str
    script: str


@dataclass(frozen=True, slots=True)
class _Script:
    entry_point: str | None
    source_dir: str | None
    hyperparameters: dict[str, Any]


def _shows_lines(logs: str | bool | Sequence[str]) -> bool:
    if isinstance(logs, bool):
        return logs
    kinds = {logs} if isinstance(logs, str) else set(logs)
    unknown = sorted(kinds - set(_LINES))
    if unknown:
        raise InvalidRequest(f"logs has {', '.join(unknown)}; it can have {', '.join(_LINES)}.")
    return any(_LINES[kind] for kind in kinds)


_LINES = {"All": True, "Training": True, "Rules": False, "None": False}


def _script_of(description: Description) -> _Script:
    """The script of a described job, if it has one, and the hyperparameters that are the user's own."""
    told = {name: text for name, text in description.get("HyperParameters", {}).items() if name not in OF_TUNING}
    if "sagemaker_program" not in told:
        return _Script(None, None, told)
    values = {name: hyperparameter(text) for name, text in told.items()}
    source = values["sagemaker_submit_directory"]
    if source == _ISOLATED_CODE:
        source = _location_of(description, "code")
    own = {name: value for name, value in values.items() if name not in _OF_SCRIPTS}
    return _Script(values["sagemaker_program"], source, own)


# What a tuning job adds to the hyperparameters of its training jobs.
ESTIMATOR_CLASS = "sagemaker_estimator_class_name"
ESTIMATOR_MODULE = "sagemaker_estimator_module"
OF_TUNING = (ESTIMATOR_CLASS, ESTIMATOR_MODULE, "_tuning_objective_metric")

_OF_SCRIPTS = (
    "sagemaker_submit_directory",
    "sagemaker_program",
    _LOG_LEVEL,
    "sagemaker_job_name",
    "sagemaker_region",
)


def _options_of(description: Description, model_channel_name: str) -> TrainingKeywords:
    resources, stopping = description["ResourceConfig"], description["StoppingCondition"]
    algorithm, output = description["AlgorithmSpecification"], description["OutputDataConfig"]
    network, checkpoints = description.get("VpcConfig", {}), description.get("CheckpointConfig", {})
    hook, tensorboard = description.get("DebugHookConfig"), description.get("TensorBoardOutputConfig")
    name = description["TrainingJobName"]
    return {
        "role": description["RoleArn"],
        "instance_count": resources.get("InstanceCount", 1),
        "instance_type": resources.get("InstanceType"),
        "instance_groups": [
            InstanceGroup(group["InstanceGroupName"], group["InstanceType"], group["InstanceCount"])
            for group in resources.get("InstanceGroups", ())
        ],
        "keep_alive_period_in_seconds": resources.get("KeepAlivePeriodInSeconds"),
        "volume_size": resources["VolumeSizeInGB"],
        "volume_kms_key": resources.get("VolumeKmsKeyId"),
        "max_run": stopping["MaxRuntimeInSeconds"],
        "max_wait": stopping.get("MaxWaitTimeInSeconds"),
        "input_mode": algorithm["TrainingInputMode"],
        "metric_definitions": algorithm.get("MetricDefinitions"),
        "container_entry_point": algorithm.get("ContainerEntrypoint"),
        "container_arguments": algorithm.get("ContainerArguments"),
        "output_path": output["S3OutputPath"],
        "output_kms_key": output.get("KmsKeyId") or None,
        "disable_output_compression": output.get("CompressionType") == "NONE",
        "base_job_name": base_of(name),
        "subnets": network.get("Subnets"),
        "security_group_ids": network.get("SecurityGroupIds"),
        "model_uri": _location_of(description, model_channel_name),
        "model_channel_name": model_channel_name,
        "use_spot_instances": description.get("EnableManagedSpotTraining", False),
        "encrypt_inter_container_traffic": description.get("EnableInterContainerTrafficEncryption", False),
        "enable_network_isolation": description.get("EnableNetworkIsolation", False),
        "checkpoint_s3_uri": checkpoints.get("S3Uri"),
        "checkpoint_local_path": checkpoints.get("LocalPath"),
        "environment": description.get("Environment"),
        "max_retry_attempts": description.get("RetryStrategy", {}).get("MaximumRetryAttempts"),
        "rules": [
            Rule.from_job_desc(rule, training_job_name=name) for rule in description.get("DebugRuleConfigurations", ())
        ],
        "debugger_hook_config": DebuggerHookConfig.from_job_desc(hook, output_path=output["S3OutputPath"])
        if hook
        else None,
        "tensorboard_output_config": TensorBoardOutputConfig.from_job_desc(tensorboard) if tensorboard else None,
        "disable_profiler": description.get("ProfilerConfig", {}).get("DisableProfiler", False),
        "enable_sagemaker_metrics": algorithm.get("EnableSageMakerMetricsTimeSeries"),
        "container_log_level": _log_level_of(description),
    }


def _log_level_of(description: Description) -> int:
    told = hyperparameter(description.get("HyperParameters", {}).get(_LOG_LEVEL, ""))
    return told if isinstance(told, int) else TrainingOptions.container_log_level


def _location_of(description: Description, channel_name: str) -> str | None:
    """Where the data of a channel is, if there is such a channel and it is on S3."""
    for channel in description.get("InputDataConfig", ()):
        if channel["ChannelName"] == channel_name:
            uri: str | None = channel["DataSource"].get("S3DataSource", {}).get("S3Uri")
            return uri
    return None
