"""Users and their key pairs."""

from dataclasses import replace
from datetime import timedelta

import pytest

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.server.records.contract import AccessKey, Change, Query, Records, User
from trainyard.testing.records.samples import ALICE, BOB, KIND, LEASE, NOON, draft, in_threads, minutes, names

AN_HOUR = timedelta(hours=1)


def user(name: str = "alice", *, account: str = ALICE, is_admin: bool = False) -> User:
    return User(account, name, f"{name}-role", is_admin, NOON)


def pair(id_: str = "AKIAALICE", *, account: str = ALICE) -> AccessKey:
    return AccessKey(id_, f"secret of {id_}", account, NOON)


def temporary(id_: str = "ASIAALICE", *, account: str = ALICE) -> AccessKey:
    return replace(pair(id_, account=account), session_token="token", expires_at=NOON + AN_HOUR, role="r", session="s")


def is_there(records: Records, id_: str) -> bool:
    try:
        return records.access_key(id_).id == id_
    except NotFound:
        return False


class UserContract:
    def test_an_added_user_is_found_with_its_key(self, records: Records) -> None:
        records.add_user(user(is_admin=True), pair())
        assert records.user(ALICE) == user(is_admin=True)
        assert records.access_key("AKIAALICE") == pair()
        assert records.access_keys(ALICE) == [pair()]

    def test_a_user_may_have_no_key_yet(self, records: Records) -> None:
        records.add_user(user())
        assert records.user(ALICE) == user()
        assert records.access_keys(ALICE) == []

    def test_an_unknown_user_is_not_found(self, records: Records) -> None:
        with pytest.raises(NotFound):
            records.user(ALICE)

    def test_users_are_listed_by_name(self, records: Records) -> None:
        records.add_user(user("bob", account=BOB), pair("AKIABOB", account=BOB))
        records.add_user(user(), pair())
        assert [one.name for one in records.users()] == ["alice", "bob"]

    def test_a_taken_name_is_refused_and_its_key_is_not_stored(self, records: Records) -> None:
        records.add_user(user(), pair())
        with pytest.raises(AlreadyExists, match="alice"):
            records.add_user(user(account=BOB), pair("AKIABOB", account=BOB))
        with pytest.raises(NotFound):
            records.access_key("AKIABOB")
        with pytest.raises(NotFound):
            records.user(BOB)

    def test_a_taken_account_is_refused(self, records: Records) -> None:
        records.add_user(user(), pair())
        with pytest.raises(AlreadyExists):
            records.add_user(user("bob"), pair("AKIABOB"))
        assert records.users() == [user()]

    def test_a_taken_key_id_refuses_the_user_too(self, records: Records) -> None:
        records.add_user(user(), pair())
        with pytest.raises(AlreadyExists, match="AKIAALICE"):
            records.add_user(user("bob", account=BOB), pair(account=BOB))
        assert records.users() == [user()]

    def test_exactly_one_of_several_concurrent_users_of_one_name_is_added(self, records: Records) -> None:
        def add(number: int) -> bool:
            account = f"{number:012}"
            try:
                records.add_user(user(account=account), pair(f"AKIA{number}", account=account))
            except AlreadyExists:
                return False
            return True

        assert sum(in_threads(16, add)) == 1
        assert len(records.users()) == 1

    def test_a_removed_user_loses_every_key(self, records: Records) -> None:
        records.add_user(user(), pair())
        records.add_access_key(temporary())
        records.remove_user(ALICE, now=minutes(1))
        assert records.users() == []
        for gone in ("AKIAALICE", "ASIAALICE"):
            with pytest.raises(NotFound):
                records.access_key(gone)

    def test_a_removed_user_is_still_known_by_its_account(self, records: Records) -> None:
        records.add_user(user(), pair())
        records.remove_user(ALICE, now=minutes(1))
        assert records.user(ALICE) == replace(user(), removed_at=minutes(1))

    def test_the_resources_of_a_removed_user_stay(self, records: Records) -> None:
        records.add_user(user(), pair())
        records.create(draft("a"), now=NOON)
        records.remove_user(ALICE, now=NOON)
        assert names(records.find(Query(KIND)).resources) == ["a"]

    def test_the_name_of_a_removed_user_is_free_for_another_account(self, records: Records) -> None:
        records.add_user(user(), pair())
        records.remove_user(ALICE, now=NOON)
        records.add_user(user(account=BOB), pair("AKIABOB", account=BOB))
        assert records.users() == [user(account=BOB)]

    def test_a_user_can_be_removed_once(self, records: Records) -> None:
        records.add_user(user(), pair())
        records.remove_user(ALICE, now=NOON)
        with pytest.raises(NotFound):
            records.remove_user(ALICE, now=NOON)
        with pytest.raises(NotFound):
            records.remove_user(BOB, now=NOON)

    def test_a_removed_or_unknown_user_gets_no_key(self, records: Records) -> None:
        records.add_user(user(), pair())
        records.remove_user(ALICE, now=NOON)
        for account in (ALICE, BOB):
            with pytest.raises(NotFound):
                records.add_access_key(pair("AKIANEW", account=account))

    def test_no_key_outlives_a_removal_at_the_same_moment(self, records: Records) -> None:
        records.add_user(user(), pair())

        def add_or_remove(number: int) -> None:
            try:
                if number == 8:
                    records.remove_user(ALICE, now=NOON)
                else:
                    records.add_access_key(temporary(f"ASIA{number}"))
            except NotFound:
                pass

        in_threads(8, add_or_remove, times=24)
        assert records.forget_expired_keys(now=NOON + AN_HOUR) == 0

    def test_a_temporary_key_is_returned_unchanged(self, records: Records) -> None:
        records.add_user(user())
        records.add_access_key(temporary())
        assert records.access_key("ASIAALICE") == temporary()

    def test_a_key_is_stored_with_its_change_or_not_at_all(self, records: Records) -> None:
        records.add_user(user())
        created = records.create(draft("a", due_at=NOON), now=NOON)
        assert records.apply(created, Change(status="x", keys=(temporary("ASIA1"),)), now=NOON) is not None
        assert records.apply(created, Change(status="y", keys=(temporary("ASIA2"),)), now=NOON) is None
        claim = records.claim_next(KIND, worker="w", lease=LEASE, now=NOON)
        assert claim is not None
        assert records.apply_claimed(claim, Change(keys=(temporary("ASIA3"),)), now=NOON) is not None
        assert records.apply_claimed(claim, Change(keys=(temporary("ASIA4"),)), now=NOON) is None
        assert records.access_key("ASIA3") == temporary("ASIA3")
        assert [is_there(records, f"ASIA{number}") for number in (1, 2, 3, 4)] == [True, False, True, False]

    def test_a_change_with_a_key_for_an_unknown_user_has_no_effect(self, records: Records) -> None:
        created = records.create(draft("a"), now=NOON)
        with pytest.raises(NotFound):
            records.apply(created, Change(status="x", keys=(temporary(),)), now=NOON)
        assert records.load(created.key) == created

    def test_an_unknown_key_is_not_found(self, records: Records) -> None:
        with pytest.raises(NotFound, match="AKIANOBODY"):
            records.access_key("AKIANOBODY")

    def test_a_taken_key_id_is_refused(self, records: Records) -> None:
        records.add_user(user(), pair())
        with pytest.raises(AlreadyExists):
            records.add_access_key(pair())

    def test_the_permanent_keys_of_a_user_are_listed_oldest_first(self, records: Records) -> None:
        records.add_user(user(), replace(pair("AKIA2"), created_at=minutes(2)))
        records.add_user(user("bob", account=BOB), pair("AKIABOB", account=BOB))
        records.add_access_key(replace(pair("AKIA3"), created_at=minutes(1)))
        records.add_access_key(temporary())
        assert [one.id for one in records.access_keys(ALICE)] == ["AKIA3", "AKIA2"]

    def test_a_removed_key_is_gone(self, records: Records) -> None:
        records.add_user(user(), pair())
        records.remove_access_key(ALICE, "AKIAALICE")
        with pytest.raises(NotFound):
            records.access_key("AKIAALICE")
        with pytest.raises(NotFound):
            records.remove_access_key(ALICE, "AKIAALICE")

    def test_a_user_cannot_remove_the_key_of_another(self, records: Records) -> None:
        records.add_user(user(), pair())
        records.add_user(user("bob", account=BOB))
        with pytest.raises(NotFound):
            records.remove_access_key(BOB, "AKIAALICE")
        assert records.access_key("AKIAALICE") == pair()

    def test_expired_keys_are_forgotten_and_counted(self, records: Records) -> None:
        records.add_user(user(), pair())
        records.add_access_key(temporary("ASIA1"))
        records.add_access_key(replace(temporary("ASIA2"), expires_at=NOON + 2 * AN_HOUR))
        assert records.forget_expired_keys(now=NOON + AN_HOUR) == 1
        assert records.forget_expired_keys(now=NOON + AN_HOUR) == 0
        with pytest.raises(NotFound):
            records.access_key("ASIA1")
        assert records.access_key("ASIA2").id == "ASIA2"
        assert records.access_keys(ALICE) == [pair()]

    def test_a_key_does_not_show_its_secret_by_accident(self, records: Records) -> None:
        records.add_user(user())
        records.add_access_key(temporary())
        assert "secret" not in repr(records.access_key("ASIAALICE"))
