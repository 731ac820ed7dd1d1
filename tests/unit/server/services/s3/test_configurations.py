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
}
ABSENCES = {
    "GetBucketCors": "NoSuchCORSConfiguration",
    "GetBucketEncryption": "ServerSideEncryptionConfigurationNotFoundError",
    "GetBucketLifecycle": "NoSuchLifecycleConfiguration",
    "GetBucketLifecycleConfiguration": "NoSuchLifecycleConfiguration",
    "GetBucketPolicy": "NoSuchBucketPolicy",
    "GetBucketPolicyStatus": "NoSuchBucketPolicy",
    "GetBucketReplication": "ReplicationConfigurationNotFoundError",
    "GetBucketWebsite": "NoSuchWebsiteConfiguration",
    "GetObjectLockConfiguration": "ObjectLockConfigurationNotFoundError",
    "GetPublicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
}


@pytest.mark.parametrize("operation", ANSWERS)
def test_what_was_never_turned_on_is_told_as_off(s3: Front, operation: str) -> None:
    assert s3(operation, Bucket="data") == ANSWERS[operation]


@pytest.mark.parametrize("operation", ABSENCES)
def test_what_was_never_configured_is_not_found(s3: Front, operation: str) -> None:
    with pytest.raises(Fault) as caught:
        s3(operation, Bucket="data")
    assert (caught.value.code, caught.value.status) == (ABSENCES[operation], 404)
    assert caught.value.members == {"BucketName": "data"}


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_a_missing_bucket_has_no_settings(s3: Front, operation: str) -> None:
    with pytest.raises(Fault) as caught:
        s3(operation, Bucket="nothing")
    assert caught.value.code == "NoSuchBucket"


def test_every_setting_is_spoken_for() -> None:
    assert ANSWERS.keys() | ABSENCES.keys() == OPERATIONS.keys()
