"""The contract of `ObjectStore`, as one suite that every back end must pass."""

from trainyard.testing.objects.buckets import BucketContract
from trainyard.testing.objects.concurrency import ConcurrencyContract
from trainyard.testing.objects.conditions import ConditionContract
from trainyard.testing.objects.copying import CopyContract
from trainyard.testing.objects.encryption import EncryptionContract
from trainyard.testing.objects.listing import ListContract
from trainyard.testing.objects.reading import ReadContract
from trainyard.testing.objects.uploads import UploadContract
from trainyard.testing.objects.writing import WriteContract

__all__ = [
    "BucketContract",
    "ConcurrencyContract",
    "ConditionContract",
    "CopyContract",
    "EncryptionContract",
    "ListContract",
    "ObjectStoreContract",
    "ReadContract",
    "UploadContract",
    "WriteContract",
]


class ObjectStoreContract(
    BucketContract,
    WriteContract,
    ReadContract,
    ConditionContract,
    ListContract,
    CopyContract,
    UploadContract,
    EncryptionContract,
    ConcurrencyContract,
):
    """The whole suite. Subclass it in a test module that has two fixtures:

    - `store`: the store under test; it may hold buckets of other tests.
    - `bucket`: an empty bucket of that store, as `samples.new_bucket` creates it.
    """
