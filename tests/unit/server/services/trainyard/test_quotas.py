import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from trainyard.foundation.errors import AlreadyExists
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, CountsStorage, StorageFull
from trainyard.wire.fault import Fault

ON_DEMAND: dict[str, Any] = {"InstanceType": "ml.m5.large", "Kind": "on-demand"}


def quotas(user: As, **asked: Any) -> list[tuple[str, str, str, int, int]]:
    found = user("trainyard", "ListQuotas", **asked)["Quotas"]
    return [(each["UserName"], each["InstanceType"], each["Kind"], each["Limit"], each["Use"]) for each in found]


def test_an_administrator_sets_changes_and_takes_away(accounts: Accounts) -> None:
    admin = accounts.admin
    assert quotas(admin) == []
    admin("trainyard", "PutQuota", UserName="anna", **ON_DEMAND, Limit=3)
    admin("trainyard", "PutQuota", UserName="anna", **ON_DEMAND, Limit=2)
    admin("trainyard", "PutQuota", UserName="*", InstanceType="*", Kind="spot", Limit=0)
    assert sorted(quotas(admin)) == [("*", "*", "spot", 0, 0), ("anna", "ml.m5.large", "on-demand", 2, 0)]
    admin("trainyard", "DeleteQuota", UserName="anna", **ON_DEMAND)
    assert quotas(admin) == [("*", "*", "spot", 0, 0)]
    with pytest.raises(Fault) as caught:
        admin("trainyard", "DeleteQuota", UserName="anna", **ON_DEMAND)
    assert (caught.value.code, caught.value.status) == ("ResourceNotFound", 404)


def test_a_user_sees_only_the_quotas_that_apply(accounts: Accounts, anna: As) -> None:
    for user in ("anna", "ben", "*"):
        accounts.admin("trainyard", "PutQuota", UserName=user, **ON_DEMAND, Limit=5)
    create(anna)
    assert sorted(quotas(anna)) == [("*", "ml.m5.large", "on-demand", 5, 1), ("anna", "ml.m5.large", "on-demand", 5, 1)]
    assert quotas(anna, UserName="anna") == quotas(anna)
    assert quotas(accounts.admin, UserName="anna") == quotas(anna)
    for name in ("ben", "nobody"):
        with pytest.raises(Fault, match="Only an administrator") as caught:
            quotas(anna, UserName=name)
        assert (caught.value.code, caught.value.status) == ("AccessDeniedException", 403)


def test_only_an_administrator_sets_them(anna: As) -> None:
    for operation, more in (("PutQuota", {"Limit": 9}), ("DeleteQuota", {})):
        with pytest.raises(Fault) as caught:
            anna("trainyard", operation, UserName="anna", **ON_DEMAND, **more)
        assert caught.value.code == "AccessDeniedException"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"UserName": "nobody"}, "ResourceNotFound"),
        ({"InstanceType": "ml.unheard"}, "ValidationException"),
        ({"Kind": "free"}, "ValidationException"),
        ({"Limit": -1}, "ValidationException"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(accounts: Accounts, changed: dict[str, Any], code: str) -> None:
    with pytest.raises(Fault) as caught:
        accounts.admin("trainyard", "PutQuota", **{"UserName": "anna", **ON_DEMAND, "Limit": 1, **changed})
    assert caught.value.code == code


def storage(user: As, **asked: Any) -> list[tuple[str, int | None, int]]:
    found = user("trainyard", "ListQuotas", **asked)["StorageQuotas"]
    return [(each["UserName"], each.get("LimitBytes"), each["UsedBytes"]) for each in found]


def usage(accounts: Accounts) -> Mapping[str, int]:
    objects = accounts.yard.objects
    assert isinstance(objects, CountsStorage)
    return objects.usage()


def keep(accounts: Accounts, user: As, size: int) -> None:
    objects, bucket = accounts.yard.objects, BucketRef(user.account, "kept")
    with contextlib.suppress(AlreadyExists):
        objects.create_bucket(bucket, region="us-east-1", now=NOON)
    writer = objects.writer(Location(bucket, f"{size}"), Attributes())
    writer.write(b"x" * size)
    writer.commit(now=NOON)


def test_an_administrator_sets_storage_quotas(accounts: Accounts, anna: As) -> None:
    admin, ben, ((_, _, before),) = accounts.admin, accounts.ben, storage(anna)
    admin("trainyard", "PutStorageQuota", UserName="anna", LimitBytes=before + 10_000)
    admin("trainyard", "PutStorageQuota", UserName="*", LimitBytes=50_000)
    keep(accounts, anna, 5_000)
    keep(accounts, ben, 20_000)
    with pytest.raises(StorageFull):
        keep(accounts, anna, 2_000)
    kept, his = before + 9_096, usage(accounts)[ben.account]
    assert [each for each in storage(admin) if each[0] in ("*", "anna", "ben")] == [
        ("*", 50_000, his),
        ("anna", before + 10_000, kept),
        ("ben", 50_000, his),
    ]
    assert storage(anna) == [("anna", before + 10_000, kept)]
    admin("trainyard", "DeleteStorageQuota", UserName="anna")
    assert storage(anna) == [("anna", 50_000, kept)]
    admin("trainyard", "DeleteStorageQuota", UserName="*")
    assert storage(anna) == [("anna", None, kept)]
    with pytest.raises(Fault) as caught:
        admin("trainyard", "DeleteStorageQuota", UserName="anna")
    assert caught.value.code == "ResourceNotFound"


def test_only_an_administrator_sets_storage_quotas(accounts: Accounts, anna: As) -> None:
    for operation, more in (("PutStorageQuota", {"LimitBytes": 1 << 60}), ("DeleteStorageQuota", {})):
        with pytest.raises(Fault) as caught:
            anna("trainyard", operation, UserName="anna", **more)
        assert caught.value.code == "AccessDeniedException"
    for changed, code in (({"UserName": "nobody"}, "ResourceNotFound"), ({"LimitBytes": -1}, "ValidationException")):
        with pytest.raises(Fault) as caught:
            accounts.admin("trainyard", "PutStorageQuota", **{"UserName": "anna", "LimitBytes": 1, **changed})
        assert caught.value.code == code


def test_the_yard_shows_the_callers_storage_and_its_limit(accounts: Accounts, anna: As) -> None:
    accounts.admin("trainyard", "PutStorageQuota", UserName="anna", LimitBytes=1_000_000)
    keep(accounts, anna, 1_000)
    keep(accounts, accounts.ben, 2_000)
    used = usage(accounts)
    told = anna("trainyard", "DescribeYard")["Storage"]
    assert (told["UsedBytes"], told["LimitBytes"]) == (used[anna.account], 1_000_000)
    assert told["ReserveBytes"] > 0
    assert told["ReserveIsTouched"] is (told["FreeBytes"] < told["ReserveBytes"])
    told = accounts.admin("trainyard", "DescribeYard")["Storage"]
    assert (told["UsedBytes"], told.get("LimitBytes")) == (sum(used.values()), None)
    assert used[accounts.ben.account] >= 6_096
