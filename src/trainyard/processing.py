"""Processors: a script or a command with its instances, inputs and outputs. `run` starts a processing job."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard._sdk.job_names import base_of_image, create_named
from trainyard._sdk.processing.job import ProcessingJobHandle
from trainyard._sdk.processing.outcomes import output_uris
from trainyard._sdk.storage.transfers import join_key
from trainyard._sdk.training.options import Tags
from trainyard._sdk.training.source_code import ARCHIVE, pack
from trainyard.estimator import Framework
from trainyard.foundation.errors import InvalidRequest
from trainyard.network import NetworkConfig
from trainyard.session import Session, get_execution_role

__all__ = [
    "FrameworkProcessor",
    "ProcessingInput",
    "ProcessingJob",
    "ProcessingOutput",
    "Processor",
    "ScriptProcessor",
]

Shape = dict[str, Any]

_ROOT = "/opt/ml/processing"
_CODE = f"{_ROOT}/input/code"
_ENTRYPOINT = f"{_ROOT}/input/entrypoint"
_LOCAL = "file://"
_RUNPROC = "runproc.sh"

# Unpacks the code and installs its requirements. `exec` leaves no shell between the program and its signals.
_RUNPROC_SCRIPT = """#!/bin/bash
set -e
cd {code}
tar -xzf {archive}
if [ -f requirements.txt ]; then
    pip install -r requirements.txt
fi
exec {command} {script} "$@"
"""


class ProcessingInput:
    """Data that a job gets as files in a folder.

    Args:
        source: An S3 location, or a local file or folder, which is uploaded when the job is created.
        destination: The folder in the instance, below `/opt/ml/processing`.
        input_name: Name of the input. Default: `input-1`, `input-2` and so on.
        s3_data_type: `S3Prefix`, or `ManifestFile` for a list of objects.
        s3_input_mode: `File`.
        s3_data_distribution_type: `FullyReplicated` gives every instance all objects, `ShardedByS3Key` a part of them.
        s3_compression_type: `None`.
        app_managed: Whether the program reads the data itself.
    """

    def __init__(
        self,
        source: str | None = None,
        destination: str | None = None,
        input_name: str | None = None,
        s3_data_type: str = "S3Prefix",
        s3_input_mode: str = "File",
        s3_data_distribution_type: str = "FullyReplicated",
        s3_compression_type: str = "None",
        *,
        app_managed: bool = False,
    ) -> None:
        self.source, self.destination, self.input_name = source, destination, input_name
        self.s3_data_type, self.s3_input_mode = s3_data_type, s3_input_mode
        self.s3_data_distribution_type, self.s3_compression_type = s3_data_distribution_type, s3_compression_type
        self.app_managed = app_managed

    def shape(self, name: str, uri: str) -> Shape:
        """Return the input as a request has it.

        Args:
            name: Name of the input, if it has none of its own.
            uri: The S3 location of its data.
        """
        source = {
            "S3Uri": uri,
            "LocalPath": self.destination,
            "S3DataType": self.s3_data_type,
            "S3InputMode": self.s3_input_mode,
            "S3DataDistributionType": self.s3_data_distribution_type,
            "S3CompressionType": self.s3_compression_type,
        }
        given = {member: value for member, value in source.items() if value is not None}
        return {"InputName": self.input_name or name, "AppManaged": self.app_managed, "S3Input": given}


class ProcessingOutput:
    """A folder whose files are stored on S3.

    Args:
        source: The folder in the instance, below `/opt/ml/processing`.
        destination: The S3 location. Default: below the name of the job, in the default bucket of the session.
        output_name: Name of the output. Default: `output-1`, `output-2` and so on.
        s3_upload_mode: `EndOfJob`, or `Continuous` to store files while the program runs too.
        app_managed: Whether the program stores the data itself.
    """

    def __init__(
        self,
        source: str | None = None,
        destination: str | None = None,
        output_name: str | None = None,
        s3_upload_mode: str = "EndOfJob",
        app_managed: bool = False,
    ) -> None:
        self.source, self.destination, self.output_name = source, destination, output_name
        self.s3_upload_mode, self.app_managed = s3_upload_mode, app_managed

    def shape(self, name: str, uri: str) -> Shape:
        """Return the output as a request has it.

        Args:
            name: Name of the output, if it has none of its own.
            uri: The S3 location, if it has none of its own.
        """
        target = {"S3Uri": self.destination or uri, "LocalPath": self.source, "S3UploadMode": self.s3_upload_mode}
        given = {member: value for member, value in target.items() if value is not None}
        return {"OutputName": self.output_name or name, "AppManaged": self.app_managed, "S3Output": given}


class ProcessingJob(ProcessingJobHandle):
    """A processing job by name. Creating one does not call the yard.

    Args:
        sagemaker_session: The session to use. Default: a new one.
        job_name: Name of the job.
    """

    def __init__(self, sagemaker_session: Session | None, job_name: str) -> None:
        self.sagemaker_session = sagemaker_session or Session()
        super().__init__(self.sagemaker_session.api, job_name)

    @classmethod
    def from_processing_name(cls, sagemaker_session: Session | None, processing_job_name: str) -> "ProcessingJob":
        """Return the job with a name.

        Args:
            sagemaker_session: The session to use. Default: a new one.
            processing_job_name: Name of the job.
        """
        return cls(sagemaker_session, processing_job_name)

    @classmethod
    def from_processing_arn(cls, sagemaker_session: Session | None, processing_job_arn: str) -> "ProcessingJob":
        """Return the job with an ARN.

        Args:
            sagemaker_session: The session to use. Default: a new one.
            processing_job_arn: ARN of the job.
        """
        return cls(sagemaker_session, processing_job_arn.rpartition("/")[2])

    @property
    def output_uris(self) -> dict[str, str]:
        """The S3 locations of the outputs, by name."""
        return output_uris(self.describe())


class Processor:
    """Runs an image or a command as a processing job. Creating a processor does not call the yard; `run` does.

    Args:
        role: Name or ARN of the role that the job runs with. Default: the role of the caller.
        image_uri: The image, which decides the environment of the program.
        instance_count: Number of instances.
        instance_type: Type of the instances.
        entrypoint: The command. Required where images are not run, as on the local engine.
        volume_size_in_gb: Size of the volume of each instance, in GB.
        volume_kms_key: KMS key for the volumes. Refused unless the yard's disks are stated to be encrypted.
        output_kms_key: KMS key, by id, ARN or alias, that encrypts the outputs.
        max_runtime_in_seconds: Time limit of the job. Default: a day.
        base_job_name: Prefix of generated job names. Default: the name of the image.
        sagemaker_session: The session to use. Default: a new `Session()`, created at the first call.
        env: Environment variables of the program.
        tags: Tags of the job: a mapping, or a list of `{"Key": …, "Value": …}`.
        network_config: What the instances can reach.
    """

    def __init__(
        self,
        role: str | None = None,
        image_uri: str | None = None,
        instance_count: int = 1,
        instance_type: str = "ml.m5.large",
        entrypoint: Sequence[str] | None = None,
        volume_size_in_gb: int = 30,
        volume_kms_key: str | None = None,
        output_kms_key: str | None = None,
        max_runtime_in_seconds: int | None = None,
        base_job_name: str | None = None,
        sagemaker_session: Session | None = None,
        env: Mapping[str, str] | None = None,
        tags: Tags | None = None,
        network_config: NetworkConfig | None = None,
    ) -> None:
        self.role, self.image_uri = role, image_uri
        self.instance_count, self.instance_type = instance_count, instance_type
        self.entrypoint = entrypoint
        self.volume_size_in_gb, self.volume_kms_key, self.output_kms_key = (
            volume_size_in_gb,
            volume_kms_key,
            output_kms_key,
        )
        self.max_runtime_in_seconds, self.base_job_name = max_runtime_in_seconds, base_job_name
        self.sagemaker_session = sagemaker_session
        self.env, self.tags, self.network_config = env, tags, network_config
        self.jobs: list[ProcessingJob] = []
        self.latest_job: ProcessingJob | None = None

    @property
    def session(self) -> Session:
        """The session; the first use creates one."""
        if self.sagemaker_session is None:
            self.sagemaker_session = Session()
        return self.sagemaker_session

    def processing_image_uri(self) -> str:
        """Return the name of the image that decides the environment of the job."""
        if not self.image_uri:
            raise InvalidRequest("A Processor needs an image_uri, which decides the environment of its program.")
        return self.image_uri

    def run(
        self,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
        wait: bool = True,
        logs: bool = True,
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
        kms_key: str | None = None,
    ) -> None:
        """Start a processing job and, by default, wait until it has ended and show its log.

        Args:
            inputs: The data that the instances get.
            outputs: The folders whose files are stored.
            arguments: Arguments of the command.
            wait: Whether to wait until the job has ended.
            logs: Whether to show its log meanwhile.
            job_name: Name of the job. Default: `base_job_name` and the time.
            experiment_config: The experiment, trial and trial component that the job belongs to.
            kms_key: Ignored: uploads are encrypted as their bucket says.

        Raises:
            UnexpectedStatusException: The job has failed; the message has its name and the reason.
        """
        del kms_key
        self._start(
            lambda name: self.request_of(name, inputs, outputs, arguments),
            job_name=job_name,
            experiment_config=experiment_config,
        )
        if wait and self.latest_job is not None:
            self.latest_job.wait(logs=logs)

    def request_of(
        self,
        name: str,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
    ) -> Shape:
        """Upload the local inputs of a job and return its CreateProcessingJob request.

        Args:
            name: Name of the job.
            inputs: The data that the instances get.
            outputs: The folders whose files are stored.
            arguments: Arguments of the command.
        """
        return self._request(name, self.entrypoint, inputs or (), outputs or (), arguments)

    def _start(
        self,
        request_of: Callable[[str], Shape],
        *,
        job_name: str | None,
        experiment_config: Mapping[str, str] | None,
    ) -> None:
        def create(name: str) -> None:
            request = request_of(name)
            if experiment_config:
                request["ExperimentConfig"] = dict(experiment_config)
            self.session.api.call("sagemaker", "CreateProcessingJob", **request)

        if job_name:
            create(job_name)
        base = self.base_job_name or base_of_image(self.processing_image_uri())
        name = job_name or create_named(base, create)
        self.latest_job = ProcessingJob(self.session, name)
        self.jobs.append(self.latest_job)

    def _request(
        self,
        name: str,
        entrypoint: Sequence[str] | None,
        inputs: Sequence[ProcessingInput],
        outputs: Sequence[ProcessingOutput],
        arguments: Sequence[str] | None,
    ) -> Shape:
        cluster = {
            "InstanceType": self.instance_type,
            "InstanceCount": self.instance_count,
            "VolumeSizeInGB": self.volume_size_in_gb,
            "VolumeKmsKeyId": self.volume_kms_key,
        }
        program = {
            "ImageUri": self.processing_image_uri(),
            "ContainerEntrypoint": list(entrypoint) if entrypoint else None,
            "ContainerArguments": [str(each) for each in arguments] if arguments else None,
        }
        stopping = {"MaxRuntimeInSeconds": self.max_runtime_in_seconds} if self.max_runtime_in_seconds else None
        environment = {key: str(value) for key, value in self.env.items()} if self.env else None
        request = {
            "ProcessingJobName": name,
            "RoleArn": self.session.expand_role(self.role) if self.role else get_execution_role(self.session),
            "ProcessingResources": {"ClusterConfig": _given(cluster)},
            "AppSpecification": _given(program),
            "ProcessingInputs": [self._input(number, each) for number, each in enumerate(inputs, 1)] or None,
            "ProcessingOutputConfig": self._outputs(name, outputs) if outputs else None,
            "StoppingCondition": stopping,
            "Environment": environment,
            "NetworkConfig": self.network_config.shape() if self.network_config else None,
            "Tags": _tag_shapes(self.tags) if self.tags else None,
        }
        return _given(request)

    def _input(self, number: int, given: ProcessingInput) -> Shape:
        source = given.source or ""
        if source and not source.startswith("s3://"):
            source = self.session.upload_input(source.removeprefix(_LOCAL))
        return given.shape(f"input-{number}", source)

    def _outputs(self, name: str, outputs: Sequence[ProcessingOutput]) -> Shape:
        shapes = []
        for number, each in enumerate(outputs, 1):
            known = each.output_name or f"output-{number}"
            shapes.append(each.shape(known, self._uri(name, "output", known)))
        return _given({"Outputs": shapes, "KmsKeyId": self.output_kms_key})

    def _uri(self, *parts: str) -> str:
        return f"s3://{self.session.default_bucket()}/{join_key(self.session.default_bucket_prefix or '', *parts)}"

    def _upload(self, body: bytes, *parts: str) -> str:
        """Store something in the default bucket and return its location."""
        uri = self._uri(*parts)
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        self.session.api.call("s3", "PutObject", Bucket=bucket, Key=key, Body=body)
        return uri


class ScriptProcessor(Processor):
    """Runs a script as a processing job.

    Args:
        role: Name or ARN of the role that the job runs with. Default: the role of the caller.
        image_uri: The image, which decides the environment of the script.
        command: The command that runs the script, such as `["python3"]`.
        instance_count: Number of instances.
        instance_type: Type of the instances.
        volume_size_in_gb: Size of the volume of each instance, in GB.
        volume_kms_key: KMS key for the volumes. Refused unless the yard's disks are stated to be encrypted.
        output_kms_key: KMS key, by id, ARN or alias, that encrypts the outputs.
        max_runtime_in_seconds: Time limit of the job. Default: a day.
        base_job_name: Prefix of generated job names. Default: the name of the image.
        sagemaker_session: The session to use. Default: a new `Session()`, created at the first call.
        env: Environment variables of the script.
        tags: Tags of the job: a mapping, or a list of `{"Key": …, "Value": …}`.
        network_config: What the instances can reach.
    """

    def __init__(
        self,
        role: str | None = None,
        image_uri: str | None = None,
        command: Sequence[str] | None = None,
        instance_count: int = 1,
        instance_type: str = "ml.m5.large",
        volume_size_in_gb: int = 30,
        volume_kms_key: str | None = None,
        output_kms_key: str | None = None,
        max_runtime_in_seconds: int | None = None,
        base_job_name: str | None = None,
        sagemaker_session: Session | None = None,
        env: Mapping[str, str] | None = None,
        tags: Tags | None = None,
        network_config: NetworkConfig | None = None,
    ) -> None:
        super().__init__(
            role,
            image_uri,
            instance_count,
            instance_type,
            None,
            volume_size_in_gb,
            volume_kms_key,
            output_kms_key,
            max_runtime_in_seconds,
            base_job_name,
            sagemaker_session,
            env,
            tags,
            network_config,
        )
        self.command = list(command or ["python3"])

    def run(  # type: ignore[override]
        self,
        code: str,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
        wait: bool = True,
        logs: bool = True,
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
        kms_key: str | None = None,
    ) -> None:
        """Start a processing job and, by default, wait until it has ended and show its log.

        Args:
            code: The script: a local file, or an S3 location of one.
            inputs: The data that the instances get.
            outputs: The folders whose files are stored.
            arguments: Arguments of the script.
            wait: Whether to wait until the job has ended.
            logs: Whether to show its log meanwhile.
            job_name: Name of the job. Default: `base_job_name` and the time.
            experiment_config: The experiment, trial and trial component that the job belongs to.
            kms_key: Ignored: uploads are encrypted as their bucket says.

        Raises:
            UnexpectedStatusException: The job has failed; the message has its name and the reason.
        """
        del kms_key
        script = Path(code.removeprefix(_LOCAL))
        if not code.startswith("s3://") and not script.is_file():
            raise InvalidRequest(f'There is no script "{script}".')

        def request_of(name: str) -> Shape:
            uri = (
                code if code.startswith("s3://") else self._upload(script.read_bytes(), name, "input/code", script.name)
            )
            brought = [*(inputs or ()), ProcessingInput(uri, _CODE, "code")]
            entrypoint = [*self.command, f"{_CODE}/{uri.rpartition('/')[2]}"]
            return self._request(name, entrypoint, brought, outputs or (), arguments)

        self._start(request_of, job_name=job_name, experiment_config=experiment_config)
        if wait and self.latest_job is not None:
            self.latest_job.wait(logs=logs)


class FrameworkProcessor(ScriptProcessor):
    """Runs a script with the image of a framework, with the files beside it and the packages that it needs.

    Args:
        estimator_cls: The estimator of the framework, such as `trainyard.pytorch.PyTorch`.
        framework_version: Version of the framework. Default: the one that the yard has.
        role: Name or ARN of the role that the job runs with. Default: the role of the caller.
        instance_count: Number of instances.
        instance_type: Type of the instances.
        py_version: Python of the image. Default: that of the framework version.
        image_uri: An image to use instead of that of the framework.
        command: The command that runs the script. Default: `["python"]`.
        code_location: S3 location for the uploaded code. Default: the default bucket of the session.
        **options: The other options of `Processor`.
    """

    def __init__(
        self,
        estimator_cls: type[Framework],
        framework_version: str | None = None,
        role: str | None = None,
        instance_count: int = 1,
        instance_type: str = "ml.m5.large",
        py_version: str | None = None,
        image_uri: str | None = None,
        command: Sequence[str] | None = None,
        *,
        code_location: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(role, image_uri, command or ["python"], instance_count, instance_type, **options)
        self.estimator_cls, self.framework_version, self.py_version = estimator_cls, framework_version, py_version
        self.code_location = code_location

    def processing_image_uri(self) -> str:
        if self.image_uri:
            return self.image_uri
        estimator = self.estimator_cls(
            "script.py",
            framework_version=self.framework_version,
            py_version=self.py_version,
            role=self.role,
            instance_type=self.instance_type,
            sagemaker_session=self.session,
        )
        return estimator.training_image_uri()

    def run(  # type: ignore[override]
        self,
        code: str,
        source_dir: str | None = None,
        dependencies: Sequence[str] | None = None,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
        wait: bool = True,
        logs: bool = True,
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
        kms_key: str | None = None,
    ) -> None:
        """Start a processing job and, by default, wait until it has ended and show its log.

        A `requirements.txt` in `source_dir` is installed before the script runs.

        Args:
            code: The script: a path, or a path in `source_dir`.
            source_dir: A local folder with the script.
            dependencies: Local files and folders to pack next to the script.
            inputs: The data that the instances get.
            outputs: The folders whose files are stored.
            arguments: Arguments of the script.
            wait: Whether to wait until the job has ended.
            logs: Whether to show its log meanwhile.
            job_name: Name of the job. Default: `base_job_name` and the time.
            experiment_config: The experiment, trial and trial component that the job belongs to.
            kms_key: Ignored: uploads are encrypted as their bucket says.

        Raises:
            UnexpectedStatusException: The job has failed; the message has its name and the reason.
        """
        del kms_key
        packed = pack(code, source_dir, dependencies or ())

        def request_of(name: str) -> Shape:
            archive = self._upload_code(packed.archive, name, ARCHIVE)
            words = {"code": _CODE, "archive": ARCHIVE, "command": " ".join(self.command), "script": packed.script}
            started = self._upload_code(_RUNPROC_SCRIPT.format(**words).encode(), name, _RUNPROC)
            code_input = ProcessingInput(archive, _CODE, "code")
            brought = [*(inputs or ()), code_input, ProcessingInput(started, _ENTRYPOINT, "entrypoint")]
            return self._request(name, ["/bin/bash", f"{_ENTRYPOINT}/{_RUNPROC}"], brought, outputs or (), arguments)

        self._start(request_of, job_name=job_name, experiment_config=experiment_config)
        if wait and self.latest_job is not None:
            self.latest_job.wait(logs=logs)

    def _upload_code(self, body: bytes, name: str, file: str) -> str:
        if self.code_location is None:
            return self._upload(body, name, "source", file)
        bucket, _, prefix = self.code_location.removeprefix("s3://").partition("/")
        key = join_key(prefix, name, "source", file)
        self.session.api.call("s3", "PutObject", Bucket=bucket, Key=key, Body=body)
        return f"s3://{bucket}/{key}"


def _given(members: Mapping[str, Any]) -> Shape:
    return {member: value for member, value in members.items() if value is not None}


def _tag_shapes(tags: Tags) -> list[dict[str, str]]:
    if isinstance(tags, Mapping):
        return [{"Key": key, "Value": value} for key, value in tags.items()]
    return [dict(tag) for tag in tags]
