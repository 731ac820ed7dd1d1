from typing import Any

import pytest

from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create
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


def test_a_user_sees_what_limits_it_and_nothing_of_others(accounts: Accounts, anna: As) -> None:
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
