"""The default encryption of a bucket: how its objects are encrypted that ask for no encryption."""

from trainyard.foundation.locations import BucketRef
from trainyard.objects.contract import EncryptsObjects
from trainyard.objects.encryption.headers import ACCOUNT_KEY, Encryption
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import bucket_of
from trainyard.server.services.s3.attributes import require_served_encryption
from trainyard.server.services.s3.checksums import verify_body
from trainyard.server.services.s3.faults import invalid_argument, malformed_xml, not_served
from trainyard.wire.fault import Fault


def get_bucket_encryption(call: Call, shape: Shape) -> Shape:
    objects, ref = call.yard.objects, bucket_of(call, shape)
    objects.bucket(ref)
    encryption = objects.bucket_encryption(ref) if isinstance(objects, EncryptsObjects) else None
    if encryption is None:
        raise Fault(
            "ServerSideEncryptionConfigurationNotFoundError",
            "The server side encryption configuration was not found",
            status=404,
            members={"BucketName": ref.name},
        )
    default = {"SSEAlgorithm": encryption.algorithm, "KMSMasterKeyID": encryption.key or None}
    rule = {"ApplyServerSideEncryptionByDefault": default, "BucketKeyEnabled": encryption.has_bucket_key}
    return {"ServerSideEncryptionConfiguration": {"Rules": [rule]}}


def put_bucket_encryption(call: Call, shape: Shape) -> Shape:
    verify_body(call)
    ref, objects = bucket_of(call, shape), call.yard.objects
    objects.bucket(ref)
    if not isinstance(objects, EncryptsObjects):
        raise not_served("the default encryption of buckets, because it keeps its objects in another S3; set it there")
    encryption = _encryption_of(shape["ServerSideEncryptionConfiguration"])
    _require_key(call, objects, ref, encryption)
    objects.encrypt_bucket(ref, encryption)
    return {}


def delete_bucket_encryption(call: Call, shape: Shape) -> Shape:
    objects, ref = call.yard.objects, bucket_of(call, shape)
    objects.bucket(ref)
    if isinstance(objects, EncryptsObjects):
        objects.encrypt_bucket(ref, None)
    return {}


OPERATIONS: Operations = {
    "GetBucketEncryption": get_bucket_encryption,
    "PutBucketEncryption": put_bucket_encryption,
    "DeleteBucketEncryption": delete_bucket_encryption,
}


def _encryption_of(configuration: Shape) -> Encryption:
    rules = configuration.get("Rules") or []
    if len(rules) != 1 or not rules[0].get("ApplyServerSideEncryptionByDefault"):
        raise malformed_xml("The configuration needs exactly one rule, with ApplyServerSideEncryptionByDefault.")
    if rules[0].get("BlockedEncryptionTypes"):
        raise not_served("BlockedEncryptionTypes")
    default = rules[0]["ApplyServerSideEncryptionByDefault"]
    algorithm, key = default["SSEAlgorithm"], default.get("KMSMasterKeyID") or ""
    require_served_encryption(algorithm)
    if key and algorithm != ACCOUNT_KEY:
        raise invalid_argument(
            "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms or aws:kms:dsse",
            name="ApplyServerSideEncryptionByDefault",
            value=algorithm,
        )
    return Encryption(algorithm, key, bool(rules[0].get("BucketKeyEnabled")))


def _require_key(call: Call, objects: EncryptsObjects, ref: BucketRef, encryption: Encryption) -> None:
    """Refuse a key with which every later write would fail."""
    if encryption.key:
        objects.keyring.find_usable(ref.account, encryption.key, region=call.region, now=call.now)
