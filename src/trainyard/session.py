"""A session: the connection of a program to a yard, its default bucket, and jobs by name."""

import os
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from trainyard._sdk.connection import (
    DEFAULT_REGION,
    Access,
    Api,
    access_from_environment,
    find_home,
    find_yard,
    start_yard,
)
from trainyard._sdk.storage.input_uploads import InputUploads
from trainyard._sdk.storage.transfers import (
    download_object,
    join_key,
    list_keys,
    local_path,
    upload_file,
    upload_folder,
)
from trainyard._sdk.training.job import TrainingJobHandle, require_no_failure
from trainyard._sdk.training.stream import Description
from trainyard._sdk.tuning.job import TuningJobHandle
from trainyard._sdk.user_folders import cache_folder
from trainyard.foundation.arns import role_arn
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.inputs import require_word
from trainyard.wire.client import CallFailed

__all__ = ["Session", "get_execution_role"]


class BotoSession(Protocol):
    """The part of a boto3 session that `Session` uses."""

    @property
    def region_name(self) -> str | None: ...

    def get_credentials(self) -> Any: ...

    def client(self, service_name: str) -> Any: ...


class Session:
    """A connection to a yard as one user. Threads may share it.

    The session uses the yard of the boto3 session if that calls one, else the yard of AWS_ENDPOINT_URL and the AWS keys
    in the environment, else the yard on this machine. It starts a yard if none runs.

    Args:
        boto_session: A boto3 session, from which to take the endpoint, the keys and the region.
        default_bucket: The bucket for code, inputs and outputs. Default: `sagemaker-REGION-ACCOUNT`.
        default_bucket_prefix: A prefix for everything that the SDK stores in the default bucket.
        api: The API client to use instead of a new one.
        region: The region. Default: that of the boto3 session or of the yard.
    """

    def __init__(
        self,
        boto_session: BotoSession | None = None,
        *,
        default_bucket: str | None = None,
        default_bucket_prefix: str | None = None,
        api: Api | None = None,
        region: str | None = None,
    ) -> None:
        region_name = region or (boto_session.region_name if boto_session else None)
        if api is None:
            access = _boto_access(boto_session, os.environ) or _default_access(os.environ)
            region_name = region_name or access.region
            client = replace(access, region=region_name).client()
            weakref.finalize(self, client.close)
            api = client
        self.api: Api = api
        self.boto_session = boto_session
        self.boto_region_name = region_name or DEFAULT_REGION
        self.default_bucket_prefix = default_bucket_prefix
        self._default_bucket, self._has_default_bucket = default_bucket, False

    def account_id(self) -> str:
        """Return the ID of the user's account."""
        account: str = self.api.call("sts", "GetCallerIdentity")["Account"]
        return account

    def get_caller_identity_arn(self) -> str:
        """Return the ARN of the caller: of the role, if the caller has assumed one."""
        arn: str = self.api.call("sts", "GetCallerIdentity")["Arn"]
        resource = arn.rpartition(":")[2]
        if not resource.startswith("assumed-role/"):
            return arn
        role = resource.split("/")[1]
        try:
            found: str = self.api.call("iam", "GetRole", RoleName=role)["Role"]["Arn"]
        except CallFailed:
            # Without permission to look the role up, its path is unknown.
            return role_arn(arn.split(":")[4], role)
        return found

    def expand_role(self, role: str) -> str:
        """Return the ARN of a role.

        Args:
            role: Name or ARN of the role.
        """
        if "/" in role:
            return role
        arn: str = self.api.call("iam", "GetRole", RoleName=role)["Role"]["Arn"]
        return arn

    def default_bucket(self) -> str:
        """Return the default bucket of the user; the first call creates it."""
        if self._default_bucket is None:
            self._default_bucket = f"sagemaker-{self.boto_region_name}-{self.account_id()}"
        if not self._has_default_bucket:
            self._make_bucket(self._default_bucket)
            self._has_default_bucket = True
        return self._default_bucket

    def upload_data(
        self,
        path: str,
        bucket: str | None = None,
        key_prefix: str = "data",
        callback: Callable[[int], None] | None = None,
        extra_args: Mapping[str, str] | None = None,
    ) -> str:
        """Upload a file, or everything in a folder, to S3 and return its S3 location.

        Args:
            path: The local file or folder.
            bucket: The bucket. Default: the default bucket of the session.
            key_prefix: Prefix of the keys.
            callback: Function that is called with the number of bytes sent, part by part.
            extra_args: More members of the requests, such as `{"ServerSideEncryption": "aws:kms"}`.

        Raises:
            InvalidRequest: The path does not exist.
        """
        source = Path(path)
        if not source.exists():
            raise InvalidRequest(f'There is no file or folder "{path}" to upload.')
        prefix = key_prefix if bucket else join_key(self.default_bucket_prefix or "", key_prefix)
        bucket = bucket or self.default_bucket()
        after_part = callback or (lambda _size: None)
        if source.is_dir():
            upload_folder(self.api, source, bucket=bucket, prefix=prefix, extra=extra_args, after_part=after_part)
            return f"s3://{bucket}/{prefix}"
        key = join_key(prefix, source.name)
        upload_file(self.api, source, bucket=bucket, key=key, extra=extra_args, after_part=after_part)
        return f"s3://{bucket}/{key}"

    def upload_input(self, path: str) -> str:
        """Upload a file or folder as the input of a job that is created within an hour, and return its S3 location.

        The upload is addressed by its content: unchanged files are not sent again, a later upload never changes it,
        and `trainyard gc` removes it when no job needs it.

        Args:
            path: The local file or folder.
        """
        return self.input_uploads().upload(Path(path)).uri

    def input_uploads(self) -> InputUploads:
        """Return a context manager that uploads local inputs for the jobs created in its block."""
        return InputUploads(self.api, self.default_bucket(), cache=cache_folder(os.environ))

    def upload_string_as_file_body(self, body: str, bucket: str, key: str, kms_key: str | None = None) -> str:
        """Write a string to an object on S3 and return its S3 location.

        Args:
            body: The text.
            bucket: The bucket.
            key: The key of the object.
            kms_key: ID of the KMS key to encrypt with.
        """
        encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}
        self.api.call("s3", "PutObject", Bucket=bucket, Key=key, Body=body.encode(), **encryption)
        return f"s3://{bucket}/{key}"

    def download_data(self, path: str, bucket: str, key_prefix: str = "") -> list[str]:
        """Download all objects with a prefix into a folder and return the paths of the files.

        Args:
            path: The local folder.
            bucket: The bucket.
            key_prefix: Prefix of the keys.
        """
        targets = []
        for key in list_keys(self.api, bucket, key_prefix):
            if key.endswith("/"):
                continue
            target = local_path(Path(path), key, key_prefix)
            download_object(self.api, target, bucket=bucket, key=key)
            targets.append(str(target))
        return targets

    def list_s3_files(self, bucket: str, key_prefix: str) -> list[str]:
        """Return the keys of all objects with a prefix.

        Args:
            bucket: The bucket.
            key_prefix: Prefix of the keys.
        """
        return list(list_keys(self.api, bucket, key_prefix))

    def read_s3_file(self, bucket: str, key_prefix: str) -> str:
        """Return the content of an object as text.

        Args:
            bucket: The bucket.
            key_prefix: The key of the object.
        """
        body: bytes = self.api.call("s3", "GetObject", Bucket=bucket, Key=key_prefix)["Body"]
        return body.decode()

    def describe_training_job(self, job_name: str) -> dict[str, Any]:
        """Return the DescribeTrainingJob response of a job.

        Args:
            job_name: Name of the job.
        """
        return TrainingJobHandle(self.api, job_name).describe()

    def stop_training_job(self, job_name: str) -> None:
        """Stop a training job. The call returns before the job has ended.

        Args:
            job_name: Name of the job.
        """
        TrainingJobHandle(self.api, job_name).stop()

    def update_training_job(
        self,
        job_name: str,
        *,
        profiler_config: Mapping[str, Any] | None = None,
        resource_config: Mapping[str, Any] | None = None,
    ) -> None:
        """Change the profiling of a running job, or the keep-alive period of the warm pool of an ended one.

        Args:
            job_name: Name of the job.
            profiler_config: The new ProfilerConfig.
            resource_config: The new ResourceConfig.
        """
        changes = {"ProfilerConfig": profiler_config, "ResourceConfig": resource_config}
        TrainingJobHandle(self.api, job_name).update(**{name: dict(value) for name, value in changes.items() if value})

    def wait_for_job(self, job: str, poll: float = 5) -> Description:
        """Wait for a training job without output, and return its description.

        Args:
            job: Name of the job.
            poll: Ignored: the yard says at once that a job has ended.

        Raises:
            UnexpectedStatusException: The job has failed.
        """
        del poll
        found = TrainingJobHandle(self.api, job)
        description = found.wait_for_end()
        require_no_failure(description, found.details())
        return description

    def logs_for_job(
        self,
        job_name: str,
        wait: bool = False,
        poll: float = 10,
        log_type: str = "All",
    ) -> None:
        """Show the log of a training job.

        Args:
            job_name: Name of the job.
            wait: Whether to follow the log until the job has ended.
            poll: Ignored: the yard sends each line as soon as it is written.
            log_type: `All` or `Training` for the log, `Rules` or `None` for nothing.

        Raises:
            InvalidRequest: There is no such kind of log.
            UnexpectedStatusException: With `wait`, the job has failed.
        """
        del poll
        require_word("log_type", log_type, ("All", "Training", "Rules", "None"))
        job = TrainingJobHandle(self.api, job_name)
        if log_type in ("All", "Training"):
            job.logs(wait)
        if wait:
            require_no_failure(job.wait_for_end(), job.details())

    def describe_tuning_job(self, job_name: str) -> dict[str, Any]:
        """Return the DescribeHyperParameterTuningJob response of a tuning job.

        Args:
            job_name: Name of the tuning job.
        """
        return TuningJobHandle(self.api, job_name).describe()

    def stop_tuning_job(self, name: str) -> None:
        """Stop a tuning job and its running training jobs. The call returns before they have ended.

        Args:
            name: Name of the tuning job.
        """
        TuningJobHandle(self.api, name).stop()

    def wait_for_tuning_job(self, job: str, poll: float = 5) -> Description:
        """Wait for a tuning job without output, and return its description.

        Args:
            job: Name of the tuning job.
            poll: Ignored: the yard says at once that a tuning job has ended.

        Raises:
            UnexpectedStatusException: The tuning job has failed.
        """
        del poll
        found = TuningJobHandle(self.api, job)
        found.wait(logs=False)
        return found.describe()

    def _make_bucket(self, name: str) -> None:
        try:
            self.api.call("s3", "HeadBucket", Bucket=name)
            return
        except CallFailed as error:
            # 403: a bucket of another account has the name; ours can be created all the same.
            if error.status not in (403, 404):
                raise
        options = {}
        # S3 does not accept us-east-1 as a location constraint.
        if self.boto_region_name != "us-east-1":
            options = {"CreateBucketConfiguration": {"LocationConstraint": self.boto_region_name}}
        try:
            self.api.call("s3", "CreateBucket", Bucket=name, **options)
        except CallFailed as error:
            # Another session has created it at the same moment.
            if error.code != "BucketAlreadyOwnedByYou":
                raise


def get_execution_role(sagemaker_session: Session | None = None) -> str:
    """Return the ARN of the role that jobs of the caller run with.

    Args:
        sagemaker_session: The session to use. Default: a new one.

    Raises:
        InvalidRequest: The caller has no role.
    """
    arn = (sagemaker_session or Session()).get_caller_identity_arn()
    if ":role/" not in arn:
        raise InvalidRequest(f'The caller is "{arn}", which is not a role; pass the role of the job by name or ARN.')
    return arn


def _boto_access(session: BotoSession | None, environment: Mapping[str, str]) -> Access | None:
    """Return the access of a boto3 session to a yard; None if the session calls AWS."""
    if session is None:
        return None
    credentials = session.get_credentials()
    url: str = session.client("sagemaker").meta.endpoint_url
    if credentials is None or (urlsplit(url).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        return None
    keys = credentials.get_frozen_credentials()
    bundle = environment.get("AWS_CA_BUNDLE")
    return Access(
        url,
        keys.access_key,
        keys.secret_key,
        session.region_name or DEFAULT_REGION,
        session_token=keys.token,
        ca_bundle=Path(bundle) if bundle else None,
    )


def _default_access(environment: Mapping[str, str]) -> Access:
    known = access_from_environment(environment)
    if known is not None:
        return known
    home = find_home(None, environment)
    try:
        return find_yard(home).access
    except NotFound:
        connection = start_yard(home)
    sys.stderr.write(f"Started a yard at {connection.runtime.http}; `trainyard down` stops it.\n")
    return connection.access
