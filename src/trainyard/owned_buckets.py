"""The services of a yard, with every S3 call saying whose bucket is meant."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard.connection import Api
    from trainyard.wire.client import Client


class OwnedBuckets:
    """Calls in which a bucket is one of the given account, or of the caller's own where none is given.

    An administrator can reach the buckets of all accounts, and anyone may choose their names. What is written to a
    bucket of another account than is meant would be somebody else's to read, and what is read from it theirs to have
    written. So the yard is told whose it is, and refuses the call where it is another's.
    """

    def __init__(self, api: "Api", account: str = "") -> None:
        self._api, self._account = api, account

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        is_on_bucket = service == "s3" and "Bucket" in params and operation != "CreateBucket"
        if is_on_bucket and "ExpectedBucketOwner" not in params:
            params = self._owned(params)
        return self._api.call(service, operation, **params)

    def stream(self, service: str, operation: str, **params: Any) -> AbstractContextManager[Iterator[bytes]]:
        return self._api.stream(service, operation, **params)

    def _owned(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if not self._account:
            self._account = self._api.call("sts", "GetCallerIdentity")["Account"]
        owners = {"ExpectedBucketOwner": self._account}
        if "CopySource" in params:
            owners["ExpectedSourceBucketOwner"] = self._account
        return {**params, **owners}


class OwnBuckets(OwnedBuckets):
    """Those of the account that a client calls as. Closing this closes the client."""

    def __init__(self, client: "Client") -> None:
        super().__init__(client)
        self.close = client.close


def buckets_of_job(api: "Api", description: Mapping[str, Any]) -> OwnedBuckets:
    """Calls in which a bucket is one of the account whose training job is described."""
    return OwnedBuckets(api, description["TrainingJobArn"].split(":")[4])
