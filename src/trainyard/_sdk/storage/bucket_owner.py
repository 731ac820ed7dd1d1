"""API clients that send the expected owner of the bucket with every S3 call."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard._sdk.connection import Api
    from trainyard.wire.client import Client


class OwnerCheckedApi:
    """Uses only buckets of one account: the given one, else that of the caller.

    An administrator can access the buckets of all accounts, and every user can choose the names of theirs. Without a
    check, an administrator's call could write to a bucket of another account or read forged data from it. So each call
    names the expected owner, and the yard rejects it if the bucket belongs to another account.
    """

    def __init__(self, api: "Api", account: str = "") -> None:
        self._api, self._account = api, account

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        is_on_bucket = service == "s3" and "Bucket" in params and operation != "CreateBucket"
        if is_on_bucket and "ExpectedBucketOwner" not in params:
            params = self._with_owner(params)
        return self._api.call(service, operation, **params)

    def stream(self, service: str, operation: str, **params: Any) -> AbstractContextManager[Iterator[bytes]]:
        return self._api.stream(service, operation, **params)

    def _with_owner(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if not self._account:
            self._account = self._api.call("sts", "GetCallerIdentity")["Account"]
        owners = {"ExpectedBucketOwner": self._account}
        if "CopySource" in params:
            owners["ExpectedSourceBucketOwner"] = self._account
        return {**params, **owners}


class OwnerCheckedClient(OwnerCheckedApi):
    """Uses only buckets of the account whose credentials the client has. Closing this closes the client."""

    def __init__(self, client: "Client") -> None:
        super().__init__(client)
        self.close = client.close


def api_for_job_buckets(api: "Api", description: Mapping[str, Any]) -> OwnerCheckedApi:
    """Return an API that uses only buckets of the account that owns a training job."""
    return OwnerCheckedApi(api, description["TrainingJobArn"].split(":")[4])
