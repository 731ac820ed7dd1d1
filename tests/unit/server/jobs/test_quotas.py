from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, open_accounts
from trainyard.foundation.errors import InvalidRequest, LimitExceeded, NotFound
from trainyard.server.jobs.quotas import CapacityKind, Quota, Quotas, QuotaUse, quota_counts
from trainyard.server.records.contract import Draft, ResourceKey

ON_DEMAND, SPOT = CapacityKind.ON_DEMAND, CapacityKind.SPOT
LARGE, SMALL = "ml.p4d.24xlarge", "ml.m5.large"


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Accounts]:
    with open_accounts(tmp_path) as opened:
        yield opened


@pytest.fixture
def quotas(accounts: Accounts) -> Quotas:
    return Quotas(accounts.yard.records)


def limit(quotas: Quotas, user: str, instance_type: str, most: int, kind: CapacityKind = ON_DEMAND) -> None:
    quotas.put(Quota(user, instance_type, kind, most), now=NOON)


def use(accounts: Accounts, account: str, instance_type: str, count: int, kind: CapacityKind = ON_DEMAND) -> None:
    key = ResourceKey(account, "job", f"{instance_type}-{count}-{kind}")
    accounts.yard.records.create(Draft(key, "", {}, counts=quota_counts([instance_type] * count, kind=kind)), now=NOON)


def fits(quotas: Quotas, account: str, instance_type: str, count: int, kind: CapacityKind = ON_DEMAND) -> bool:
    try:
        quotas.check(account, instance_type, count, kind=kind)
    except LimitExceeded:
        return False
    return True


def test_there_is_no_limit_until_one_is_set(accounts: Accounts, quotas: Quotas) -> None:
    assert fits(quotas, accounts.anna.account, LARGE, 10**6)
    assert quotas.list() == []


def test_a_limit_counts_what_is_in_use(accounts: Accounts, quotas: Quotas) -> None:
    limit(quotas, "anna", SMALL, 3)
    use(accounts, accounts.anna.account, SMALL, 2)
    assert fits(quotas, accounts.anna.account, SMALL, 1)
    assert not fits(quotas, accounts.anna.account, SMALL, 2)
    assert fits(quotas, accounts.anna.account, LARGE, 2)
    assert fits(quotas, accounts.ben.account, SMALL, 2)


def test_a_limit_for_every_user_applies_to_each_separately(accounts: Accounts, quotas: Quotas) -> None:
    limit(quotas, "*", SMALL, 2)
    use(accounts, accounts.anna.account, SMALL, 2)
    assert not fits(quotas, accounts.anna.account, SMALL, 1)
    assert fits(quotas, accounts.ben.account, SMALL, 2)


@pytest.mark.parametrize("own", [1, 5])
def test_a_users_own_limit_replaces_that_for_every_user(accounts: Accounts, quotas: Quotas, own: int) -> None:
    limit(quotas, "*", SMALL, 3)
    limit(quotas, "anna", SMALL, own)
    assert fits(quotas, accounts.anna.account, SMALL, own)
    assert not fits(quotas, accounts.anna.account, SMALL, own + 1)


def test_a_limit_for_any_type_counts_all_types_and_applies_beside_that_of_one(
    accounts: Accounts, quotas: Quotas
) -> None:
    limit(quotas, "anna", "*", 3)
    limit(quotas, "anna", SMALL, 5)
    limit(quotas, "anna", LARGE, 1)
    use(accounts, accounts.anna.account, SMALL, 2)
    assert fits(quotas, accounts.anna.account, LARGE, 1)
    assert not fits(quotas, accounts.anna.account, LARGE, 2)
    assert not fits(quotas, accounts.anna.account, SMALL, 2)


def test_spot_and_on_demand_are_counted_separately(accounts: Accounts, quotas: Quotas) -> None:
    limit(quotas, "anna", SMALL, 1)
    limit(quotas, "anna", SMALL, 2, SPOT)
    use(accounts, accounts.anna.account, SMALL, 1)
    assert not fits(quotas, accounts.anna.account, SMALL, 1)
    assert fits(quotas, accounts.anna.account, SMALL, 2, SPOT)
    with pytest.raises(LimitExceeded, match=r"'ml\.m5\.large for spot training job usage'.*large 3 --spot`"):
        quotas.check(accounts.anna.account, SMALL, 3, kind=SPOT)


def test_a_limit_can_be_changed_and_removed(accounts: Accounts, quotas: Quotas) -> None:
    limit(quotas, "anna", SMALL, 1)
    limit(quotas, "anna", SMALL, 4)
    assert quotas.list() == [QuotaUse(Quota("anna", SMALL, ON_DEMAND, 4), 0)]
    quotas.remove("anna", SMALL, kind=ON_DEMAND, now=NOON)
    assert quotas.list() == []
    with pytest.raises(NotFound, match="quota"):
        quotas.remove("anna", SMALL, kind=ON_DEMAND, now=NOON)


def test_a_limit_of_zero_forbids_a_type(accounts: Accounts, quotas: Quotas) -> None:
    limit(quotas, "*", LARGE, 0)
    assert not fits(quotas, accounts.anna.account, LARGE, 1)


@pytest.mark.parametrize("most", [-1, 1_000_001])
def test_an_invalid_limit_is_refused(quotas: Quotas, most: int) -> None:
    with pytest.raises(InvalidRequest, match="it must be 0 to"):
        limit(quotas, "anna", SMALL, most)


def test_an_unknown_user_has_no_quota(quotas: Quotas) -> None:
    with pytest.raises(NotFound, match='no user named "nobody"'):
        limit(quotas, "nobody", SMALL, 1)


def test_all_quotas_are_listed_with_their_use(accounts: Accounts, quotas: Quotas) -> None:
    limit(quotas, "anna", SMALL, 5)
    limit(quotas, "*", "*", 9)
    use(accounts, accounts.anna.account, SMALL, 2)
    use(accounts, accounts.ben.account, LARGE, 3)
    found = {(each.quota.user, each.quota.instance_type): (each.quota.limit, each.use) for each in quotas.list()}
    assert found == {("anna", SMALL): (5, 2), ("*", "*"): (9, 3)}


def test_a_user_sees_the_quotas_that_apply_to_it_with_its_own_use(accounts: Accounts, quotas: Quotas) -> None:
    limit(quotas, "anna", SMALL, 5)
    limit(quotas, "*", "*", 9)
    use(accounts, accounts.anna.account, SMALL, 2)
    assert quotas.list("ben") == [QuotaUse(Quota("*", "*", ON_DEMAND, 9), 0)]
    assert {each.use for each in quotas.list("anna")} == {2}


def test_the_quota_of_a_removed_user_is_not_listed(accounts: Accounts, quotas: Quotas) -> None:
    limit(quotas, "ben", SMALL, 5)
    accounts.yard.records.remove_user(accounts.ben.account, now=NOON)
    assert quotas.list() == []
