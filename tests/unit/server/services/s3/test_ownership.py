from typing import Any

import pytest

from tests.unit.server.services.s3.front import OWNER, STRANGER, Front
from trainyard.server.services.s3.ownership import canonical_id
from trainyard.wire.fault import Fault


def test_the_owner_alone_has_full_control(s3: Front) -> None:
    s3.put("data", "key")
    owner = {"DisplayName": OWNER, "ID": canonical_id(OWNER)}
    control = {
        "Owner": owner,
        "Grants": [{"Grantee": {"Type": "CanonicalUser", **owner}, "Permission": "FULL_CONTROL"}],
    }
    assert s3("GetBucketAcl", Bucket="data") == control
    assert s3("GetObjectAcl", Bucket="data", Key="key") == control


def test_the_owner_is_the_account_of_the_bucket_whoever_asks(s3: Front, administrator: Front) -> None:
    assert administrator("GetBucketAcl", Bucket="data")["Owner"]["ID"] == canonical_id(OWNER)


WHERE = [("PutBucketAcl", {"Bucket": "data"}), ("PutObjectAcl", {"Bucket": "data", "Key": "digits"})]


@pytest.mark.parametrize(("operation", "where"), WHERE)
def test_the_grants_that_are_true_may_be_put(s3: Front, digits: str, operation: str, where: dict[str, str]) -> None:
    true = s3(operation.replace("Put", "Get"), **where)
    assert s3(operation, **where, ACL="private") == {}
    assert s3(operation, **where, AccessControlPolicy=true) == {}


@pytest.mark.parametrize(("operation", "where"), WHERE)
@pytest.mark.parametrize(
    ("shape", "code"),
    [
        ({"ACL": "public-read"}, "NotImplemented"),
        ({"GrantRead": "id=abc"}, "NotImplemented"),
        ({"AccessControlPolicy": {"Grants": [{"Grantee": {"ID": "abc"}, "Permission": "READ"}]}}, "NotImplemented"),
        ({}, "MissingSecurityHeader"),
    ],
)
def test_no_other_grants_may_be_put(
    s3: Front, digits: str, operation: str, where: dict[str, str], shape: dict[str, Any], code: str
) -> None:
    with pytest.raises(Fault) as caught:
        s3(operation, **where, **shape)
    assert caught.value.code == code


def test_the_ownership_that_is_true_may_be_put(s3: Front) -> None:
    true = s3("GetBucketOwnershipControls", Bucket="data")["OwnershipControls"]
    assert s3("PutBucketOwnershipControls", Bucket="data", OwnershipControls=true) == {}
    other = {"Rules": [{"ObjectOwnership": "ObjectWriter"}]}
    with pytest.raises(Fault) as caught:
        s3("PutBucketOwnershipControls", Bucket="data", OwnershipControls=other)
    assert caught.value.code == "NotImplemented"


def test_objects_always_belong_to_the_owner_of_the_bucket(s3: Front) -> None:
    rules = s3("GetBucketOwnershipControls", Bucket="data")["OwnershipControls"]["Rules"]
    assert rules == [{"ObjectOwnership": "BucketOwnerEnforced"}]


def test_canonical_ids_tell_accounts_apart_and_do_not_change() -> None:
    assert canonical_id(OWNER) == "d845c06013a17dc650bbed64166a1788901a9b811343f45eb8b9f4b1279120e7"
    assert canonical_id(OWNER) != canonical_id(STRANGER)
