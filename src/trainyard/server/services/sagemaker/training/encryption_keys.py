"""The encryption keys that a training job names: for what it stores, and for the disks of its instances."""

from datetime import datetime

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.objects.contract import EncryptsObjects, ObjectStore
from trainyard.objects.encryption.keys import KeyUnusable
from trainyard.server.services.contract import Compute, Shape


def find_output_key(
    objects: ObjectStore, shape: Shape, *, account: str, region: str, now: datetime, member: str = "OutputDataConfig"
) -> str:
    """Return the ARN of the key that a member of a request names; empty if none. InvalidRequest if it cannot be used.

    Keys of another S3 are known there only, so they are passed on as they are.
    """
    reference: str = shape.get(member, {}).get("KmsKeyId") or ""
    if not reference or not isinstance(objects, EncryptsObjects):
        return reference
    try:
        return objects.keyring.find_usable(account, reference, region=region, now=now).arn
    except NotFound as error:
        raise InvalidRequest(
            f"The KmsKeyId {reference} in {member} does not exist in your account. "
            "`aws kms list-aliases` and `aws kms list-keys` show its keys."
        ) from error
    except KeyUnusable as error:
        raise InvalidRequest(f"The KmsKeyId in {member} cannot be used: {error.message}") from error


def require_encrypted_disks(compute: Compute, shape: Shape, *, member: str = "ResourceConfig") -> None:
    """Refuse a VolumeKmsKeyId unless the disks are encrypted: whoever sends it relies on that."""
    if shape[member].get("VolumeKmsKeyId") and not compute.has_encrypted_disks:
        raise InvalidRequest(
            f"{member} has a VolumeKmsKeyId, but this yard does not encrypt the disks of its machines, and nobody "
            "has stated that they are encrypted. If they are (by dm-crypt, say), an administrator sets "
            "disk_is_encrypted = true in settings.toml; otherwise leave VolumeKmsKeyId out."
        )
