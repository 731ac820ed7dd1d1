import pytest

from tests.unit.server.services.s3.front import Front
from trainyard.server.services.s3.configurations import OPERATIONS
from trainyard.wire.fault import Fault

ANSWERS = {
    "GetBucketVersioning": {},
    "GetBucketLogging": {},
    "GetBucketNotification": {},
    "GetBucketNotificationConfiguration": {},
    "GetBucketAccelerateConfiguration": {},
    "GetBucketRequestPayment": {"Payer": "BucketOwner"},
    "ListBucketAnalyticsConfigurations": {"IsTruncated": False},
    "ListBucketIntelligentTieringConfigurations": {"IsTruncated": False},
    "ListBucketInventoryConfigurations": {"IsTruncated": False},
    "ListBucketMetricsConfigurations": {"IsTruncated": False},
}
ABSENCES = {
    "GetBucketCors": "NoSuchCORSConfiguration",
    "GetBucketLifecycle": "NoSuchLifecycleConfiguration",
    "GetBucketLifecycleConfiguration": "NoSuchLifecycleConfiguration",
    "GetBucketPolicy": "NoSuchBucketPolicy",
    "GetBucketPolicyStatus": "NoSuchBucketPolicy",
    "GetBucketReplication": "ReplicationConfigurationNotFoundError",
    "GetBucketWebsite": "NoSuchWebsiteConfiguration",
    "GetObjectLockConfiguration": "ObjectLockConfigurationNotFoundError",
    "GetPublicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
    "GetBucketAnalyticsConfiguration": "NoSuchConfiguration",
    "GetBucketIntelligentTieringConfiguration": "NoSuchConfiguration",
    "GetBucketInventoryConfiguration": "NoSuchConfiguration",
    "GetBucketMetricsConfiguration": "NoSuchConfiguration",
}
DELETES = [
    *("DeleteBucketCors", "DeleteBucketLifecycle", "DeleteBucketPolicy"),
    *("DeleteBucketReplication", "DeleteBucketWebsite", "DeletePublicAccessBlock"),
]
LOCKS = ["GetObjectLegalHold", "GetObjectRetention"]


@pytest.mark.parametrize("operation", ANSWERS)
def test_unset_switches_are_off(s3: Front, operation: str) -> None:
    assert s3(operation, Bucket="data") == ANSWERS[operation]


@pytest.mark.parametrize("operation", ABSENCES)
def test_unset_configurations_are_not_found(s3: Front, operation: str) -> None:
    with pytest.raises(Fault) as caught:
        s3(operation, Bucket="data")
    assert (caught.value.code, caught.value.status) == (ABSENCES[operation], 404)
    assert caught.value.members == {"BucketName": "data"}


@pytest.mark.parametrize("operation", DELETES)
def test_unset_configurations_can_be_deleted(s3: Front, operation: str) -> None:
    assert s3(operation, Bucket="data") == {}


@pytest.mark.parametrize("operation", LOCKS)
def test_no_object_is_locked(s3: Front, digits: str, operation: str) -> None:
    with pytest.raises(Fault) as caught:
        s3(operation, Bucket="data", Key="digits")
    assert (caught.value.code, caught.value.status) == ("InvalidRequest", 400)


def test_the_owner_pays_and_nobody_else(s3: Front) -> None:
    assert s3("PutBucketRequestPayment", Bucket="data", RequestPaymentConfiguration={"Payer": "BucketOwner"}) == {}
    with pytest.raises(Fault) as caught:
        s3("PutBucketRequestPayment", Bucket="data", RequestPaymentConfiguration={"Payer": "Requester"})
    assert caught.value.code == "NotImplemented"


def test_a_missing_bucket_has_no_settings(s3: Front) -> None:
    codes = {}
    for operation in OPERATIONS:
        with pytest.raises(Fault) as caught:
            s3(operation, Bucket="nothing", **({"Key": "key"} if operation in LOCKS else {}))
        codes[operation] = caught.value.code
    assert codes == dict.fromkeys(OPERATIONS, "NoSuchBucket")


def test_every_setting_has_a_test() -> None:
    told = {*ANSWERS, *ABSENCES, *DELETES, *LOCKS, "PutBucketRequestPayment"}
    assert told == OPERATIONS.keys()
