"""The yard as a program sees it: who one is to it, a bucket for its things, and jobs by name."""

import os
import sys
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from trainyard.connection import DEFAULT_REGION, Access, Api, access_of, find_home, find_yard, start_yard
from trainyard.file_digests import cache_folder
from trainyard.following import Description
from trainyard.foundation.arns import role_arn
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.input_uploads import InputUploads
from trainyard.training_job import TrainingJob, require_no_failure
from trainyard.transfers import download_object, joined, keys_below, place_below, upload_file, upload_folder
from trainyard.tuning_job import TuningJob
from trainyard.wire.client import CallFailed


class BotoSession(Protocol):
    """What is read of a boto3 session."""

    @property
    def region_name(self) -> str | None: ...

    def get_credentials(self) -> Any: ...

    def client(self, service_name: str) -> Any: ...


class Session:
    """A user of a yard.

    Which yard: that of a boto3 session whose calls go to one, else that of AWS_ENDPOINT_URL and its keys, else the one
    on this machine; where none runs, one is started. May be shared between threads.
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
        asked = region or (boto_session.region_name if boto_session else None)
        if api is None:
            access = _access_of_boto(boto_session) or _usual_access()
            asked = asked or access.region
            client = replace(access, region=asked).client()
            weakref.finalize(self, client.close)
            api = client
        self.api: Api = api
        self.boto_session = boto_session
        self.boto_region_name = asked or DEFAULT_REGION
        self.default_bucket_prefix = default_bucket_prefix
        self._default_bucket, self._is_bucket_there = default_bucket, False

    def account_id(self) -> str:
        account: str = self.api.call("sts", "GetCallerIdentity")["Account"]
        return account

    def get_caller_identity_arn(self) -> str:
        """The role that the user has, as IAM names it."""
        arn: str = self.api.call("sts", "GetCallerIdentity")["Arn"]
        resource = arn.rpartition(":")[2]
        if not resource.startswith("assumed-role/"):
            return arn
        role = resource.split("/")[1]
        try:
            found: str = self.api.call("iam", "GetRole", RoleName=role)["Role"]["Arn"]
        except CallFailed:  # without the right to look, the path of the role is not known
            return role_arn(arn.split(":")[4], role)
        return found

    def expand_role(self, role: str) -> str:
        """The ARN of a role, which may be given by its name."""
        if "/" in role:
            return role
        arn: str = self.api.call("iam", "GetRole", RoleName=role)["Role"]["Arn"]
        return arn

    def default_bucket(self) -> str:
        """A bucket of the user's own, made when it is first asked for."""
        if self._default_bucket is None:
            self._default_bucket = f"sagemaker-{self.boto_region_name}-{self.account_id()}"
        if not self._is_bucket_there:
            self._make_bucket(self._default_bucket)
            self._is_bucket_there = True
        return self._default_bucket

    def upload_data(self, path: str, bucket: str | None = None, key_prefix: str = "data") -> str:
        """Bring a file, or all below a folder, to S3 and return where it is."""
        source = Path(path)
        if not source.exists():
            raise InvalidRequest(f'There is no file or folder "{path}" to upload.')
        prefix = key_prefix if bucket else joined(self.default_bucket_prefix or "", key_prefix)
        bucket = bucket or self.default_bucket()
        if source.is_dir():
            upload_folder(self.api, source, bucket=bucket, prefix=prefix)
            return f"s3://{bucket}/{prefix}"
        key = joined(prefix, source.name)
        upload_file(self.api, source, bucket=bucket, key=key)
        return f"s3://{bucket}/{key}"

    def upload_input(self, path: str) -> str:
        """Upload a file or folder as the input of a job that is made within the hour, and return where it is.

        It is stored by its content in the default bucket: unchanged files are not sent again, another upload never
        changes it, and `trainyard gc` removes it when no job needs it any more.
        """
        return self.input_uploads().upload(Path(path)).uri

    def input_uploads(self) -> InputUploads:
        """Uploads of local inputs to the default bucket, for the jobs that are made in its block."""
        return InputUploads(self.api, self.default_bucket(), cache=cache_folder(os.environ))

    def upload_string_as_file_body(self, body: str, bucket: str, key: str) -> str:
        """Write a text to S3 and return where it is."""
        self.api.call("s3", "PutObject", Bucket=bucket, Key=key, Body=body.encode())
        return f"s3://{bucket}/{key}"

    def download_data(self, path: str, bucket: str, key_prefix: str = "") -> list[str]:
        """Bring every object below a prefix into a folder and return the files."""
        targets = []
        for key in keys_below(self.api, bucket, key_prefix):
            if key.endswith("/"):
                continue
            target = place_below(Path(path), key, key_prefix)
            download_object(self.api, target, bucket=bucket, key=key)
            targets.append(str(target))
        return targets

    def list_s3_files(self, bucket: str, key_prefix: str) -> list[str]:
        """The keys that begin with a prefix."""
        return list(keys_below(self.api, bucket, key_prefix))

    def read_s3_file(self, bucket: str, key_prefix: str) -> str:
        """The text of one object."""
        body: bytes = self.api.call("s3", "GetObject", Bucket=bucket, Key=key_prefix)["Body"]
        return body.decode()

    def describe_training_job(self, job_name: str) -> dict[str, Any]:
        return TrainingJob(self.api, job_name).describe()

    def stop_training_job(self, job_name: str) -> None:
        TrainingJob(self.api, job_name).stop()

    def update_training_job(
        self,
        job_name: str,
        *,
        profiler_config: Mapping[str, Any] | None = None,
        resource_config: Mapping[str, Any] | None = None,
    ) -> None:
        """Change how a running job is profiled, or how long the warm pool of an ended one is kept."""
        changes = {"ProfilerConfig": profiler_config, "ResourceConfig": resource_config}
        TrainingJob(self.api, job_name).update(**{name: dict(value) for name, value in changes.items() if value})

    def wait_for_job(self, job: str) -> Description:
        """Wait in silence for the end of a job and return its description; a failure raises."""
        found = TrainingJob(self.api, job)
        description = found.wait_for_end()
        require_no_failure(description, found.details())
        return description

    def logs_for_job(self, job_name: str, wait: bool = False) -> None:
        """Show what a job has written, and go on until it has ended if asked to wait."""
        TrainingJob(self.api, job_name).logs(wait)

    def describe_tuning_job(self, job_name: str) -> dict[str, Any]:
        return TuningJob(self.api, job_name).describe()

    def stop_tuning_job(self, name: str) -> None:
        TuningJob(self.api, name).stop()

    def wait_for_tuning_job(self, job: str) -> Description:
        """Wait in silence for the end of a tuning job and return its description; a failure raises."""
        found = TuningJob(self.api, job)
        found.wait(logs=False)
        return found.describe()

    def _make_bucket(self, name: str) -> None:
        try:
            self.api.call("s3", "HeadBucket", Bucket=name)
            return
        except CallFailed as error:
            if error.status not in (403, 404):  # where another account has it, which is no hindrance
                raise
        options = {}
        if self.boto_region_name != "us-east-1":  # which S3 lets nobody name
            options = {"CreateBucketConfiguration": {"LocationConstraint": self.boto_region_name}}
        try:
            self.api.call("s3", "CreateBucket", Bucket=name, **options)
        except CallFailed as error:
            if error.code != "BucketAlreadyOwnedByYou":  # by another session at the same moment
                raise


def get_execution_role(sagemaker_session: Session | None = None) -> str:
    """The ARN of the role that jobs of the user run with."""
    arn = (sagemaker_session or Session()).get_caller_identity_arn()
    if ":role/" not in arn:
        raise InvalidRequest(f'The caller is "{arn}", which is no role; give the role of the job by its name or ARN.')
    return arn


def _access_of_boto(session: BotoSession | None) -> Access | None:
    """The yard that a boto3 session calls; None where it calls AWS."""
    if session is None:
        return None
    credentials = session.get_credentials()
    url: str = session.client("sagemaker").meta.endpoint_url
    if credentials is None or (urlsplit(url).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        return None
    keys = credentials.get_frozen_credentials()
    bundle = os.environ.get("AWS_CA_BUNDLE")
    return Access(
        url,
        keys.access_key,
        keys.secret_key,
        session.region_name or DEFAULT_REGION,
        session_token=keys.token,
        ca_bundle=Path(bundle) if bundle else None,
    )


def _usual_access() -> Access:
    known = access_of(os.environ)
    if known is not None:
        return known
    home = find_home(None, os.environ)
    try:
        return find_yard(home).access
    except NotFound:
        connection = start_yard(home)
    sys.stderr.write(f"Started a yard at {connection.runtime.http}; `trainyard down` stops it.\n")
    return connection.access
