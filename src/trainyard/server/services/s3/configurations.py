"""Settings of a bucket that the yard has not, and says so: each read has one true answer, no write is served."""

from trainyard.server.services.contract import Call, Operation, Operations, Shape
from trainyard.server.services.s3.addressing import bucket_of
from trainyard.wire.fault import Fault


def get_bucket_request_payment(call: Call, shape: Shape) -> Shape:
    call.yard.objects.bucket(bucket_of(call, shape))
    return {"Payer": "BucketOwner"}


def empty_configuration(call: Call, shape: Shape) -> Shape:
    """What S3 answers for a bucket on which such a thing was never turned on."""
    call.yard.objects.bucket(bucket_of(call, shape))
    return {}


def absent_configuration(code: str, what: str) -> Operation:
    """The read of a setting whose absence is an error of its own."""

    def get(call: Call, shape: Shape) -> Shape:
        bucket = call.yard.objects.bucket(bucket_of(call, shape))
        name = bucket.ref.name
        raise Fault(code, f'The bucket "{name}" has no {what}.', status=404, members={"BucketName": name})

    return get


_LIFECYCLE = absent_configuration("NoSuchLifecycleConfiguration", "lifecycle configuration")
_POLICY = absent_configuration("NoSuchBucketPolicy", "policy")

OPERATIONS: Operations = {
    "GetBucketRequestPayment": get_bucket_request_payment,
    "GetBucketVersioning": empty_configuration,
    "GetBucketLogging": empty_configuration,
    "GetBucketNotification": empty_configuration,
    "GetBucketNotificationConfiguration": empty_configuration,
    "GetBucketAccelerateConfiguration": empty_configuration,
    "GetBucketLifecycle": _LIFECYCLE,
    "GetBucketLifecycleConfiguration": _LIFECYCLE,
    "GetBucketPolicy": _POLICY,
    "GetBucketPolicyStatus": _POLICY,
    "GetBucketCors": absent_configuration("NoSuchCORSConfiguration", "CORS configuration"),
    "GetBucketEncryption": absent_configuration("ServerSideEncryptionConfigurationNotFoundError", "default encryption"),
    "GetBucketReplication": absent_configuration("ReplicationConfigurationNotFoundError", "replication"),
    "GetBucketWebsite": absent_configuration("NoSuchWebsiteConfiguration", "website"),
    "GetObjectLockConfiguration": absent_configuration(
        "ObjectLockConfigurationNotFoundError", "object lock configuration"
    ),
    "GetPublicAccessBlock": absent_configuration(
        "NoSuchPublicAccessBlockConfiguration", "public access block; nothing in it is public"
    ),
}
