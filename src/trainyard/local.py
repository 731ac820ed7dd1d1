"""The local mode of the `sagemaker` SDK. Here it needs no mode: jobs run on this machine anyway."""

from typing import Any

from trainyard.session import BotoSession, Session

__all__ = ["LocalSession"]


class LocalSession(Session):
    """A session, under the name that scripts for SageMaker's local mode use.

    There is no separate local mode: a job of `instance_type="local"` or `"local_gpu"` is a job of the yard on this
    machine like any other, with its log, its model and its entry in the list of jobs.

    Args:
        boto_session: A boto3 session, from which to take the endpoint, the keys and the region.
        default_bucket: The bucket for code, inputs and outputs. Default: `sagemaker-REGION-ACCOUNT`.
        s3_endpoint_url: Ignored: the yard stores objects itself.
        disable_local_code: Ignored: code is always packed and uploaded.
        sagemaker_config: Ignored: Trainyard has no such configuration.
        default_bucket_prefix: A prefix for everything that the SDK stores in the default bucket.
    """

    def __init__(
        self,
        boto_session: BotoSession | None = None,
        default_bucket: str | None = None,
        s3_endpoint_url: str | None = None,
        disable_local_code: bool = False,
        sagemaker_config: object = None,
        default_bucket_prefix: str | None = None,
    ) -> None:
        super().__init__(boto_session, default_bucket=default_bucket, default_bucket_prefix=default_bucket_prefix)
        # Scripts set `session.config = {"local": {"local_code": True}}`.
        self.config: dict[str, Any] = {}
        del s3_endpoint_url, disable_local_code, sagemaker_config
