"""Bucket settings that the yard does not have. Reads answer as S3 does if nothing is set; writes are refused."""

from trainyard.server.services.contract import Call, Operation, Operations, Shape
from trainyard.server.services.s3.addressing import bucket_of, location_of
from trainyard.server.services.s3.checksums import verify_body
from trainyard.server.services.s3.faults import invalid_request, not_served
from trainyard.wire.fault import Fault

OWNER_PAYS: Shape = {"Payer": "BucketOwner"}


def get_bucket_request_payment(call: Call, shape: Shape) -> Shape:
    call.yard.objects.bucket(bucket_of(call, shape))
    return OWNER_PAYS


def put_bucket_request_payment(call: Call, shape: Shape) -> Shape:
    verify_body(call)
    call.yard.objects.bucket(bucket_of(call, shape))
    if shape["RequestPaymentConfiguration"] != OWNER_PAYS:
        raise not_served("requester-pays buckets")
    return {}


def empty_configuration(call: Call, shape: Shape) -> Shape:
    """Answer as S3 does for a setting that was never turned on, and when it is turned off."""
    call.yard.objects.bucket(bucket_of(call, shape))
    return {}


def no_configurations(call: Call, shape: Shape) -> Shape:
    call.yard.objects.bucket(bucket_of(call, shape))
    return {"IsTruncated": False}


def absent_configuration(code: str, message: str) -> Operation:
    """Return an operation that fails with the error of a missing setting."""

    def get(call: Call, shape: Shape) -> Shape:
        bucket = call.yard.objects.bucket(bucket_of(call, shape))
        raise Fault(code, message, status=404, members={"BucketName": bucket.ref.name})

    return get


def object_lock(call: Call, shape: Shape) -> Shape:
    """Refuse to read a legal hold or retention, which only a bucket with object lock has."""
    call.yard.objects.info(location_of(call, shape))
    raise invalid_request("Bucket is missing Object Lock Configuration")


_LIFECYCLE = absent_configuration("NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist")
_POLICY = absent_configuration("NoSuchBucketPolicy", "The bucket policy does not exist")
_NAMED = absent_configuration("NoSuchConfiguration", "The specified configuration does not exist.")

OPERATIONS: Operations = {
    "GetBucketRequestPayment": get_bucket_request_payment,
    "PutBucketRequestPayment": put_bucket_request_payment,
    "GetBucketVersioning": empty_configuration,
    "GetBucketLogging": empty_configuration,
    "GetBucketNotification": empty_configuration,
    "GetBucketNotificationConfiguration": empty_configuration,
    "GetBucketAccelerateConfiguration": empty_configuration,
    "GetBucketLifecycle": _LIFECYCLE,
    "GetBucketLifecycleConfiguration": _LIFECYCLE,
    "GetBucketPolicy": _POLICY,
    "GetBucketPolicyStatus": _POLICY,
    "GetBucketCors": absent_configuration("NoSuchCORSConfiguration", "The CORS configuration does not exist"),
    "GetBucketReplication": absent_configuration(
        "ReplicationConfigurationNotFoundError", "The replication configuration was not found"
    ),
    "GetBucketWebsite": absent_configuration(
        "NoSuchWebsiteConfiguration", "The specified bucket does not have a website configuration"
    ),
    "GetObjectLockConfiguration": absent_configuration(
        "ObjectLockConfigurationNotFoundError", "Object Lock configuration does not exist for this bucket"
    ),
    "GetPublicAccessBlock": absent_configuration(
        "NoSuchPublicAccessBlockConfiguration", "The public access block configuration was not found"
    ),
    "GetBucketAnalyticsConfiguration": _NAMED,
    "GetBucketIntelligentTieringConfiguration": _NAMED,
    "GetBucketInventoryConfiguration": _NAMED,
    "GetBucketMetricsConfiguration": _NAMED,
    "ListBucketAnalyticsConfigurations": no_configurations,
    "ListBucketIntelligentTieringConfigurations": no_configurations,
    "ListBucketInventoryConfigurations": no_configurations,
    "ListBucketMetricsConfigurations": no_configurations,
    "GetObjectLegalHold": object_lock,
    "GetObjectRetention": object_lock,
    "DeleteBucketLifecycle": empty_configuration,
    "DeleteBucketPolicy": empty_configuration,
    "DeleteBucketCors": empty_configuration,
    "DeleteBucketReplication": empty_configuration,
    "DeleteBucketWebsite": empty_configuration,
    "DeletePublicAccessBlock": empty_configuration,
}
