from tests.unit.server.services.s3.front import OWNER, STRANGER, Front
from trainyard.server.services.s3.ownership import canonical_id


def test_the_owner_alone_has_full_control(s3: Front) -> None:
    s3.put("data", "key")
    owner = {"ID": canonical_id(OWNER)}
    control = {
        "Owner": owner,
        "Grants": [{"Grantee": {"Type": "CanonicalUser", **owner}, "Permission": "FULL_CONTROL"}],
    }
    assert s3("GetBucketAcl", Bucket="data") == control
    assert s3("GetObjectAcl", Bucket="data", Key="key") == control


def test_the_owner_is_the_account_of_the_bucket_whoever_asks(s3: Front, administrator: Front) -> None:
    assert administrator("GetBucketAcl", Bucket="data")["Owner"] == {"ID": canonical_id(OWNER)}


def test_objects_always_belong_to_the_owner_of_the_bucket(s3: Front) -> None:
    rules = s3("GetBucketOwnershipControls", Bucket="data")["OwnershipControls"]["Rules"]
    assert rules == [{"ObjectOwnership": "BucketOwnerEnforced"}]


def test_canonical_ids_tell_accounts_apart_and_do_not_change() -> None:
    assert canonical_id(OWNER) == "d845c06013a17dc650bbed64166a1788901a9b811343f45eb8b9f4b1279120e7"
    assert canonical_id(OWNER) != canonical_id(STRANGER)
