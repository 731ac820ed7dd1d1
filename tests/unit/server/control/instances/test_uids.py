from tests.unit.server.services.accounts import NOON, Accounts
from trainyard.server.control.instances.uids import COUNT, FIRST, uid_of


def test_an_account_has_always_the_same_uid(accounts: Accounts) -> None:
    records = accounts.yard.records
    assert uid_of(records, "123456789012", now=NOON) == uid_of(records, "123456789012", now=NOON)


def test_accounts_whose_numbers_meet_get_uids_of_their_own(accounts: Accounts) -> None:
    records = accounts.yard.records
    first, second = "100000000007", str(100000000007 + COUNT)
    assert uid_of(records, first, now=NOON) == FIRST + 7
    assert uid_of(records, second, now=NOON) == FIRST + 8
    assert uid_of(records, first, now=NOON) == FIRST + 7
