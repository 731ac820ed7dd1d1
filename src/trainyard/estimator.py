"""Estimators: a training script or image with its instances, options and data. `fit` starts a training job."""

import hashlib
import inspect
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from trainyard import image_uris
from trainyard._sdk.job_names import base_of, base_of_image, create_named
from trainyard._sdk.profiling.profiler_rule import default_rule, get_default_profiler_processing_job
from trainyard._sdk.rule_request import RuleBase
from trainyard._sdk.storage.transfers import join_key
from trainyard._sdk.training.distribution import Distribution, launcher_hyperparameters
from trainyard._sdk.training.git_state import git_tags
from trainyard._sdk.training.job import TrainingJobHandle, hyperparameter, is_log_shown
from trainyard._sdk.training.local_modules import LocalCode, find_local_code
from trainyard._sdk.training.options import TrainingOptions, full_signature, name_positional, require_known
from trainyard._sdk.training.request import (
    ResolvedJob,
    debugger_rules,
    profiler_rules,
    require_consistent,
    training_request,
)
from trainyard._sdk.training.source_code import ARCHIVE, pack
from trainyard._sdk.training.stream import Description
from trainyard.debugger import (
    DebuggerHookConfig,
    FrameworkProfile,
    ProfilerConfig,
    ProfilerRule,
    Rule,
    TensorBoardOutputConfig,
)
from trainyard.foundation.engine_names import ENGINE_TAG
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.later_modules import LaterMembers
from trainyard.foundation.locations import parse_s3_uri
from trainyard.inputs import Inputs, Shape, upload_local
from trainyard.instance_group import InstanceGroup
from trainyard.session import Session, get_execution_role
from trainyard.wire.client import CallFailed

if TYPE_CHECKING:
    from trainyard.analytics import TrainingJobAnalytics
    from trainyard.model import ModelPackage

__all__ = ["Estimator", "EstimatorBase", "Framework", "TrainingOptions"]

Hyperparameters = Mapping[str, Any]

_LOG_LEVEL = "sagemaker_container_log_level"
# Where a job without a network finds its code.
_ISOLATED_CODE = f"/opt/ml/input/data/code/{ARCHIVE}"


class EstimatorBase(LaterMembers, TrainingOptions, ABC):
    """The base of all estimators. Creating one does not call the yard; `fit` does.

    Args:
        entry_point: The script to run: a path, or a path in `source_dir`.
        source_dir: A local folder with the script, or an S3 location of its archive.
        hyperparameters: Hyperparameters of the job.
        **options: The options of `TrainingOptions`.
    """

    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.__signature__ = full_signature(cls.__init__)

    def __init__(
        self,
        entry_point: str | None,
        source_dir: str | None,
        hyperparameters: Hyperparameters | None,
        **options: Any,
    ) -> None:
        require_known(type(self), options)
        super().__init__(**options)
        self.entry_point, self.source_dir = entry_point, source_dir
        self.latest_training_job: TrainingJobHandle | None = None
        self._hyperparameters: dict[str, Any] = dict(hyperparameters or {})

    @abstractmethod
    def training_image_uri(self) -> str:
        """Return the name of the image that decides the environment of the job."""

    def hyperparameters(self) -> dict[str, Any]:
        """Return the hyperparameters of the next job; for a script, each is JSON."""
        if not self.entry_point:
            return dict(self._hyperparameters)
        return {name: json.dumps(value) for name, value in self._hyperparameters.items()}

    def set_hyperparameters(self, **values: Any) -> None:
        """Set some hyperparameters and leave the others unchanged.

        Args:
            **values: The new values by name.
        """
        self._hyperparameters.update(values)

    def fit(
        self,
        inputs: Inputs | None = None,
        wait: bool = True,
        logs: str | bool | Sequence[str] = "All",
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
    ) -> None:
        """Start a training job and, by default, wait until it has ended and show its log.

        Args:
            inputs: The channels: an S3 location or a `TrainingInput` for the channel `training`, or several of these
                by channel name. A local file or folder, such as `file://data`, is uploaded first.
            wait: Whether to wait until the job has ended.
            logs: Which lines to show: `All`, `Training`, `Rules` or `None`, several of these, or whether to show any.
            job_name: Name of the job. Default: `base_job_name` and the time.
            experiment_config: The experiment, trial and trial component that the job belongs to.

        Raises:
            UnexpectedStatusException: The job has failed; the message has its name and the reason.
            InvalidRequest: The options contradict each other.
        """
        shows_log = is_log_shown(logs)

        def create(name: str) -> None:
            request = self.request_of(name, inputs)
            if experiment_config:
                request["ExperimentConfig"] = dict(experiment_config)
            self.session.api.call("sagemaker", "CreateTrainingJob", **request)

        if job_name:
            create(job_name)
        name = job_name or create_named(self.base_job_name or base_of_image(self.training_image_uri()), create)
        self.latest_training_job = TrainingJobHandle(self.session.api, name)
        if wait:
            self.latest_training_job.wait(logs=shows_log)

    def _repr_html_(self) -> str | None:
        # Notebooks show the text instead of None.
        return None if self.latest_training_job is None else self.latest_training_job._repr_html_()

    def _ipython_display_(self) -> None:
        if self.latest_training_job is None:
            raise NotImplementedError
        self.latest_training_job._ipython_display_()

    def request_of(self, name: str, inputs: Inputs | None = None) -> Shape:
        """Upload the code of a job and return its CreateTrainingJob request.

        Args:
            name: Name of the job.
            inputs: The channels, as `fit` takes them.
        """
        require_consistent(self, inputs)
        request = training_request(self, self._resolve(name), inputs)
        if "InputDataConfig" in request:
            request["InputDataConfig"] = upload_local(request["InputDataConfig"], self.session.upload_input)
        if origin := self._code_origin():
            others = [tag for tag in request.get("Tags", ()) if tag["Key"] not in origin]
            request["Tags"] = [*others, *({"Key": key, "Value": value} for key, value in origin.items())]
        return request

    def logs(self) -> None:
        """Show the log of the latest job until the job has ended."""
        self._latest().logs()

    def enable_default_profiling(self) -> None:
        """Turn the profiling of the latest job on, with samples of the hardware and a report.

        The job must be running, and its profiling off.

        Raises:
            InvalidRequest: The job is profiled already.
        """
        job = self._latest()
        description = job.describe()
        if description.get("ProfilingStatus") == "Enabled":
            raise InvalidRequest(
                f'Training job "{job.name}" is profiled already; update_profiler changes what is profiled.'
            )
        path = description.get("ProfilerConfig", {}).get("S3OutputPath") or self._output_path()
        self.profiler_config = ProfilerConfig(s3_output_path=path)
        self._update_profiling(self.profiler_config, [default_rule()])

    def disable_profiling(self) -> None:
        """Turn the profiling of the latest job off. The job must be running.

        Raises:
            InvalidRequest: The profiling is off already.
        """
        job = self._latest()
        if job.describe().get("ProfilingStatus") == "Disabled":
            raise InvalidRequest(f'Training job "{job.name}" is not profiled.')
        job.update(ProfilerConfig={"DisableProfiler": True})

    def update_profiler(
        self,
        rules: Sequence[ProfilerRule] | None = None,
        system_monitor_interval_millis: int | None = None,
        s3_output_path: str | None = None,
        framework_profile_params: FrameworkProfile | None = None,
        disable_framework_metrics: bool = False,
    ) -> None:
        """Change how the latest job is profiled, and turn its profiling on. The job must be running.

        What is not given stays as it is.

        Args:
            rules: Profiler rules to add to the job.
            system_monitor_interval_millis: Interval of the hardware samples, in milliseconds.
            s3_output_path: S3 location of the profiles. It cannot be changed once the job has one.
            framework_profile_params: Which profiles the program takes of itself from now on.
            disable_framework_metrics: Whether to turn those profiles off.

        Raises:
            InvalidRequest: There is nothing to change, or the arguments contradict each other.
        """
        given = (rules, system_monitor_interval_millis, s3_output_path, framework_profile_params)
        if not any((*given, disable_framework_metrics)):
            raise InvalidRequest("update_profiler has nothing to change; give at least one argument.")
        if disable_framework_metrics and framework_profile_params:
            raise InvalidRequest("disable_framework_metrics and framework_profile_params contradict each other.")
        for rule in rules or ():
            if not isinstance(rule, ProfilerRule):
                raise InvalidRequest(f"rules has a {type(rule).__name__}; update_profiler takes profiler rules.")
        chosen = FrameworkProfile.from_parameters({}) if disable_framework_metrics else framework_profile_params
        self.profiler_config = ProfilerConfig(s3_output_path, system_monitor_interval_millis, chosen)
        self._update_profiling(self.profiler_config, rules or ())

    def latest_job_profiler_artifacts_path(self) -> str:
        """Return the S3 location of the profiles of the latest job."""
        return self._artifacts("ProfilerConfig", "profiler-output", option="profiler_config")

    def latest_job_debugger_artifacts_path(self) -> str:
        """Return the S3 location of the tensors that the latest job captured."""
        return self._artifacts("DebugHookConfig", "debug-output", option="debugger_hook_config")

    def latest_job_tensorboard_artifacts_path(self) -> str:
        """Return the S3 location that TensorBoard reads for the latest job."""
        return self._artifacts("TensorBoardOutputConfig", "tensorboard-output", option="tensorboard_output_config")

    @property
    def model_data(self) -> str:
        """The S3 location of the model of the latest job; InvalidRequest while it has none."""
        description = self._latest().describe()
        uri: str | None = description["ModelArtifacts"].get("S3ModelArtifacts")
        name, status = description["TrainingJobName"], description["TrainingJobStatus"]
        if not uri or status not in ("Completed", "Stopped"):
            raise InvalidRequest(f'Training job "{name}" is {status} and has no model.')
        return uri

    def register(
        self,
        content_types: Sequence[str] | None = None,
        response_types: Sequence[str] | None = None,
        inference_instances: Sequence[str] | None = None,
        transform_instances: Sequence[str] | None = None,
        image_uri: str | None = None,
        model_package_name: str | None = None,
        model_package_group_name: str | None = None,
        model_metrics: Mapping[str, Any] | None = None,
        approval_status: str | None = None,
        description: str | None = None,
        customer_metadata_properties: Mapping[str, str] | None = None,
    ) -> "ModelPackage":
        """Register the model of the latest job, and return the model package.

        Args:
            content_types: MIME types of the input that the model accepts.
            response_types: MIME types of its output.
            inference_instances: Instance types for endpoints.
            transform_instances: Instance types for batch transform.
            image_uri: The image that serves the model. Default: the image of the job.
            model_package_name: Name of a package without versions.
            model_package_group_name: Group whose next version it becomes. It is created if it does not exist.
            model_metrics: The metrics of the model, as CreateModelPackage takes them.
            approval_status: `Approved`, `Rejected` or `PendingManualApproval`, the default.
            description: What to know about the version.
            customer_metadata_properties: Properties to keep with it.

        Raises:
            InvalidRequest: The latest job has no model, or neither or both of the names are given.
        """
        from trainyard._sdk.lineage.registration import register_model
        from trainyard.model import ModelPackage

        given = {
            "SupportedContentTypes": content_types,
            "SupportedResponseMIMETypes": response_types,
            "SupportedRealtimeInferenceInstanceTypes": inference_instances,
            "SupportedTransformInstanceTypes": transform_instances,
            "ModelMetrics": model_metrics,
            "ModelApprovalStatus": approval_status,
            "ModelPackageDescription": description,
            "CustomerMetadataProperties": customer_metadata_properties,
        }
        arn = register_model(
            self.session.api,
            image=image_uri or self.training_image_uri(),
            model_uri=self.model_data,
            group=model_package_group_name or "",
            name=model_package_name or "",
            options={member: value for member, value in given.items() if value is not None},
        )
        return ModelPackage(arn, self.session)

    @property
    def training_job_analytics(self) -> "TrainingJobAnalytics":
        """The metrics of the latest job as a table."""
        from trainyard.analytics import TrainingJobAnalytics

        return TrainingJobAnalytics(self._latest().name, sagemaker_session=self.session)

    @property
    def session(self) -> Session:
        """The session of the estimator, created at the first use if none was given."""
        self.sagemaker_session = self.sagemaker_session or Session()
        return self.sagemaker_session

    @classmethod
    def attach(
        cls, training_job_name: str, sagemaker_session: Session | None = None, model_channel_name: str = "model"
    ) -> Self:
        """Wait until a job has ended, and return an estimator with its options.

        Args:
            training_job_name: Name of the job.
            sagemaker_session: The session to use. Default: a new one.
            model_channel_name: Name of the channel that the job got its model from.
        """
        session = sagemaker_session or Session()
        job = TrainingJobHandle(session.api, training_job_name)
        description = job.wait_for_end()
        estimator = cls.from_job_desc(description, session, model_channel_name=model_channel_name)
        tags = session.api.call("sagemaker", "ListTags", ResourceArn=description["TrainingJobArn"])["Tags"]
        estimator.engine = next((tag["Value"] for tag in tags if tag["Key"] == ENGINE_TAG), None)
        estimator.tags = [tag for tag in tags if tag["Key"] != ENGINE_TAG]
        estimator.latest_training_job = job
        return estimator

    @classmethod
    def from_job_desc(cls, description: Description, session: Session, *, model_channel_name: str = "model") -> Self:
        """Return an estimator with the options of a job description.

        Args:
            description: A description as DescribeTrainingJob returns it; the job need not exist.
            session: The session of the estimator.
            model_channel_name: Name of the channel that the job got its model from.
        """
        options = _options_from_description(description, model_channel_name)
        options["sagemaker_session"] = session
        return cls._from_description(description, options)

    @classmethod
    @abstractmethod
    def _from_description(cls, description: Description, options: dict[str, Any]) -> Self:
        """Return an estimator of this class with the values that a description has."""

    def _launch_hyperparameters(self, job_name: str) -> dict[str, Any]:  # noqa: ARG002 - used by overrides
        """Return the hyperparameters for the launcher of a distributed job, not yet encoded."""
        return {}

    def _latest(self) -> TrainingJobHandle:
        if self.latest_training_job is None:
            raise InvalidRequest("This estimator has no training job yet; call fit first.")
        return self.latest_training_job

    def _update_profiling(self, config: ProfilerConfig, rules: Sequence[ProfilerRule]) -> None:
        changes: dict[str, Any] = {"ProfilerConfig": config.shape(None)}
        if rules:
            changes["ProfilerRuleConfigurations"] = self._profiler_rule_shapes(rules)
        self._latest().update(**changes)

    def _artifacts(self, member: str, folder: str, *, option: str) -> str:
        description = self._latest().describe()
        if "S3OutputPath" not in description.get(member, {}):
            name = description["TrainingJobName"]
            raise InvalidRequest(f'Training job "{name}" was created without {option}; set it on the estimator.')
        return f"{description[member]['S3OutputPath'].rstrip('/')}/{description['TrainingJobName']}/{folder}"

    def _output_path(self) -> str:
        if self.output_path is not None:
            return self.output_path
        return f"s3://{join_key(self.session.default_bucket(), self.session.default_bucket_prefix or '')}/"

    def _resolve(self, name: str) -> ResolvedJob:
        # Before any upload, so that an invalid distribution leaves nothing on S3.
        launch = self._launch_hyperparameters(name)
        code = self._upload_code(name)
        hyperparameters = {key: str(value) for key, value in self.hyperparameters().items()}
        more = (self._script_hyperparameters(name, code) if code else {}) | launch
        return ResolvedJob(
            name,
            self.training_image_uri(),
            self.session.expand_role(self.role) if self.role else get_execution_role(self.session),
            self._output_path(),
            hyperparameters | {key: json.dumps(value) for key, value in more.items()},
            rules=self._rule_shapes(name),
            profiler_rules=self._profiler_rule_shapes(self._profiler_rules()),
            code_uri=code.uri if code and self.enable_network_isolation else None,
        )

    def _rule_shapes(self, name: str) -> list[dict[str, Any]]:
        """Return the rules as the request has them; the files of custom rules are uploaded."""
        rules = debugger_rules(self)
        image = self._rule_image(rules)
        return [rule.shape(name, image_uri=image, source_uri=self._upload_rule(rule)) for rule in rules]

    def _profiler_rules(self) -> list[ProfilerRule]:
        """Return the profiler rules of the next job: with a `profiler_config`, a report, unless rules say otherwise."""
        rules, config = profiler_rules(self), self.profiler_config
        if rules or config is None or self.disable_profiler or self.rules == []:
            return rules
        report = [] if config.disable_profiler else [default_rule()]
        return [*report, *([get_default_profiler_processing_job()] if config.profile_params else [])]

    def _profiler_rule_shapes(self, rules: Sequence[ProfilerRule]) -> list[dict[str, Any]]:
        image = self._rule_image(rules)
        return [rule.shape(image_uri=image, source_uri=self._upload_rule(rule)) for rule in rules]

    def _rule_image(self, rules: Sequence[RuleBase]) -> str:
        """Return the image of the built-in rules; empty without rules, which need none."""
        return image_uris.retrieve("debugger", self.session.boto_region_name) if rules else ""

    def _upload_rule(self, rule: RuleBase) -> str:
        if not rule.source or rule.source.startswith("s3://"):
            return rule.source
        session = self.session
        prefix = join_key(session.default_bucket_prefix or "", rule.name, str(uuid.uuid4()))
        return session.upload_data(rule.source, bucket=session.default_bucket(), key_prefix=prefix)

    def _upload_code(self, name: str) -> "_UploadedCode | None":
        if not self.entry_point:
            return None
        if self.source_dir and self.source_dir.startswith("s3://"):
            return _UploadedCode(self.source_dir, self.entry_point)
        packed = pack(self.entry_point, self.source_dir, self.dependencies or (), self._find_local_code())
        bucket, prefix = self._code_location()
        return _UploadedCode(
            self._upload_archive(packed.archive, bucket, join_key(prefix, name, "source")), packed.script
        )

    def _code_origin(self) -> Mapping[str, str]:
        """Return the tags that name the commit of the code, if it is local and in a git work tree."""
        if not self.entry_point or (self.source_dir or "").startswith("s3://"):
            return {}
        return git_tags(Path(self.source_dir) if self.source_dir else Path(self.entry_point).parent)

    def _find_local_code(self) -> LocalCode | None:
        if self.entry_point and self.include_local_modules and not self.source_dir:
            return find_local_code(Path(self.entry_point))
        return None

    def _upload_archive(self, archive: bytes, bucket: str, prefix: str) -> str:
        """Upload the code under a prefix that only jobs of one name use, and return its location.

        An archive that is there already is not overwritten, because the job that owns it may be queued or be retried.
        Other code of that name is stored next to it, under its digest.
        """
        put = {"Bucket": bucket, "Body": archive}
        key = join_key(prefix, ARCHIVE)
        try:
            self.session.api.call("s3", "PutObject", **put, Key=key, IfNoneMatch="*")
        except CallFailed as error:
            if error.status != 412:
                raise
            key = join_key(prefix, hashlib.sha256(archive).hexdigest(), ARCHIVE)
            self.session.api.call("s3", "PutObject", **put, Key=key)
        return f"s3://{bucket}/{key}"

    def _code_location(self) -> tuple[str, str]:
        """Return the bucket and the prefix for code; of an output path that was set, only the bucket is used."""
        location = parse_s3_uri(self.code_location or self._output_path(), account="")
        return location.bucket.name, location.key if self.code_location or self.output_path is None else ""

    def _script_hyperparameters(self, name: str, code: "_UploadedCode") -> dict[str, Any]:
        return {
            "sagemaker_submit_directory": _ISOLATED_CODE if self.enable_network_isolation else code.uri,
            "sagemaker_program": code.script,
            _LOG_LEVEL: self.container_log_level,
            "sagemaker_job_name": name,
            "sagemaker_region": self.session.boto_region_name,
        }


class Estimator(EstimatorBase):
    """Trains with an image: a built-in algorithm or, with an `entry_point`, your own script.

    The options up to `enable_network_isolation` can be given by position, in the order of the sagemaker SDK, which has
    `hyperparameters` after `sagemaker_session`.

    Args:
        image_uri: The image, such as `image_uris.retrieve` returns it.
        *positional: Options of `TrainingOptions` by position.
        entry_point: The script to run: a path, or a path in `source_dir`.
        source_dir: A local folder with the script, or an S3 location of its archive.
        hyperparameters: Hyperparameters of the job.
        **options: The options of `TrainingOptions`.

    Raises:
        TypeError: For an argument that does not exist.
    """

    def __init__(
        self,
        image_uri: str,
        *positional: Any,
        entry_point: str | None = None,
        source_dir: str | None = None,
        hyperparameters: Hyperparameters | None = None,
        **options: Any,
    ) -> None:
        named = name_positional(type(self), positional, {**options, "hyperparameters": hyperparameters})
        hyperparameters = named.pop("hyperparameters", hyperparameters)
        super().__init__(entry_point, source_dir, hyperparameters, **(options | named))
        self.image_uri = image_uri

    def training_image_uri(self) -> str:
        return self.image_uri

    @classmethod
    def _from_description(cls, description: Description, options: dict[str, Any]) -> Self:
        script = _parse_script(description)
        return cls(
            description["AlgorithmSpecification"]["TrainingImage"],
            hyperparameters=script.hyperparameters,
            entry_point=script.entry_point,
            source_dir=script.source_dir,
            **options,
        )


class Framework(EstimatorBase):
    """Trains your own script in the environment of a framework.

    Args:
        entry_point: The script to run: a path, or a path in `source_dir`.
        source_dir: A local folder with the script, or an S3 location of its archive.
        hyperparameters: Hyperparameters, which the script gets as arguments.
        framework_version: Version of the framework. Default: the one that the yard has.
        py_version: Python of the image, such as `py312`. Default: that of the framework version.
        image_uri: An image to use instead of that of the framework.
        distribution: How to launch a distributed job, such as `{"torch_distributed": {"enabled": True}}`.
        **options: The options of `TrainingOptions`.

    Raises:
        InvalidRequest: Without an `entry_point`.
        TypeError: For an argument that does not exist.
    """

    framework: ClassVar[str]
    # Of its images.
    repository: ClassVar[str]

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
        **options: Any,
    ) -> None:
        require_known(type(self), options)
        if not entry_point:
            raise InvalidRequest(f"{type(self).__name__} needs an entry_point: the script to run.")
        super().__init__(entry_point, source_dir, hyperparameters, **options)
        self.framework_version, self.py_version = framework_version, py_version
        self.image_uri, self.distribution = image_uri, distribution

    def training_image_uri(self) -> str:
        known = self.image_uri or self._installed_image_uri()
        if known:
            return known
        region, version = self.session.boto_region_name, self.framework_version
        return image_uris.retrieve(self.framework, region, version, self.py_version, self._image_instance_type())

    def _installed_image_uri(self) -> str | None:
        """Return the image that stands for the version that the yard has, if no version was asked for."""
        return None if self.framework_version or self.py_version else f"{self.repository}:latest"

    def _image_instance_type(self) -> str | None:
        """Return the instance type that decides between the CPU and the GPU image: of groups, the first with GPUs."""
        types = [group.instance_type for group in self.instance_groups or ()]
        with_gpus = (each for each in types if each.startswith(("ml.g", "ml.p")))
        return self.instance_type or next(with_gpus, types[0] if types else None)

    def _launch_hyperparameters(self, job_name: str) -> dict[str, Any]:  # noqa: ARG002 - used by overrides
        return launcher_hyperparameters(self.distribution, self.instance_type, groups=self.instance_groups or ())

    @classmethod
    def _from_description(cls, description: Description, options: dict[str, Any]) -> Self:
        script = _parse_script(description)
        return cls(
            entry_point=script.entry_point,
            source_dir=script.source_dir,
            hyperparameters=script.hyperparameters,
            image_uri=description["AlgorithmSpecification"]["TrainingImage"],
            **options,
        )


@dataclass(frozen=True, slots=True)
class _UploadedCode:
    uri: str
    script: str


@dataclass(frozen=True, slots=True)
class _DescribedScript:
    entry_point: str | None
    source_dir: str | None
    hyperparameters: dict[str, Any]


def _parse_script(description: Description) -> _DescribedScript:
    """Return the script of a described job, if it has one, and the hyperparameters that the user set."""
    texts = {
        name: text
        for name, text in description.get("HyperParameters", {}).items()
        if name not in TUNING_HYPERPARAMETERS
    }
    if "sagemaker_program" not in texts:
        return _DescribedScript(None, None, texts)
    values = {name: hyperparameter(text) for name, text in texts.items()}
    source = values["sagemaker_submit_directory"]
    if source == _ISOLATED_CODE:
        source = _channel_location(description, "code")
    own = {name: value for name, value in values.items() if name not in _SCRIPT_HYPERPARAMETERS}
    return _DescribedScript(values["sagemaker_program"], source, own)


# Hyperparameters that a tuning job adds to its training jobs.
ESTIMATOR_CLASS = "sagemaker_estimator_class_name"
ESTIMATOR_MODULE = "sagemaker_estimator_module"
TUNING_HYPERPARAMETERS = (ESTIMATOR_CLASS, ESTIMATOR_MODULE, "_tuning_objective_metric")

_SCRIPT_HYPERPARAMETERS = (
    "sagemaker_submit_directory",
    "sagemaker_program",
    _LOG_LEVEL,
    "sagemaker_job_name",
    "sagemaker_region",
)


def _options_from_description(description: Description, model_channel_name: str) -> dict[str, Any]:
    resources, stopping = description["ResourceConfig"], description["StoppingCondition"]
    algorithm, output = description["AlgorithmSpecification"], description["OutputDataConfig"]
    network, checkpoints = description.get("VpcConfig", {}), description.get("CheckpointConfig", {})
    hook, tensorboard = description.get("DebugHookConfig"), description.get("TensorBoardOutputConfig")
    name, profiler = description["TrainingJobName"], description.get("ProfilerConfig", {})
    members = ("DebugRuleConfigurations", "ProfilerRuleConfigurations")
    debugging, profiling = (description.get(member, ()) for member in members)
    config = ProfilerConfig.from_job_desc(profiler, output_path=output["S3OutputPath"])
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
        "model_uri": _channel_location(description, model_channel_name),
        "model_channel_name": model_channel_name,
        "use_spot_instances": description.get("EnableManagedSpotTraining", False),
        "encrypt_inter_container_traffic": description.get("EnableInterContainerTrafficEncryption", False),
        "enable_network_isolation": description.get("EnableNetworkIsolation", False),
        "checkpoint_s3_uri": checkpoints.get("S3Uri"),
        "checkpoint_local_path": checkpoints.get("LocalPath"),
        "environment": description.get("Environment"),
        "max_retry_attempts": description.get("RetryStrategy", {}).get("MaximumRetryAttempts"),
        "rules": [
            *(Rule.from_job_desc(each, training_job_name=name) for each in debugging),
            *(ProfilerRule.from_job_desc(each) for each in profiling),
        ],
        "debugger_hook_config": DebuggerHookConfig.from_job_desc(hook, output_path=output["S3OutputPath"])
        if hook
        else None,
        "tensorboard_output_config": TensorBoardOutputConfig.from_job_desc(tensorboard) if tensorboard else None,
        "profiler_config": config,
        "disable_profiler": config is None and profiler.get("DisableProfiler", False),
        "enable_sagemaker_metrics": algorithm.get("EnableSageMakerMetricsTimeSeries"),
        "container_log_level": _container_log_level(description),
    }


def _container_log_level(description: Description) -> int:
    level = hyperparameter(description.get("HyperParameters", {}).get(_LOG_LEVEL, ""))
    return level if isinstance(level, int) else TrainingOptions.container_log_level


def _channel_location(description: Description, channel_name: str) -> str | None:
    """Return the S3 location of a channel; None when the channel does not exist or is not on S3."""
    for channel in description.get("InputDataConfig", ()):
        if channel["ChannelName"] == channel_name:
            uri: str | None = channel["DataSource"].get("S3DataSource", {}).get("S3Uri")
            return uri
    return None
