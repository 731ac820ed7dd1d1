from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trainyard.foundation.errors import AlreadyExists, Conflict, LimitExceeded, NotFound
from trainyard.server.identity import (
    DEFAULT_ROLE,
    CredentialProblem,
    Identities,
    InvalidCredential,
    is_temporary,
    new_key_id,
    role_key,
)
from trainyard.server.records.contract import AccessKey, ResourceKey
from trainyard.server.records.sql import SqlRecords, open_records

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[SqlRecords]:
    opened = open_records(f"sqlite:///{tmp_path}/records.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def identities(records: SqlRecords) -> Identities:
    return Identities(records)


def add(identities: Identities, name: str, *, is_admin: bool = False) -> AccessKey:
    key = identities.add_user(name, now=NOON, is_admin=is_admin).key
    assert key is not None, "a key was asked for"
    return key


def reason(identities: Identities, key_id: str, token: str | None = None, *, now: datetime = NOON) -> CredentialProblem:
    with pytest.raises(InvalidCredential) as caught:
        identities.resolve(key_id, token, now=now)
    return caught.value.problem


def test_the_first_start_makes_an_administrator_with_a_role_and_a_key(
    identities: Identities, records: SqlRecords
) -> None:
    key = identities.ensure_admin(now=NOON)
    assert key is not None
    caller = identities.resolve(key.id, None, now=NOON).caller
    assert (caller.user, caller.role, caller.session, caller.is_admin) == ("admin", DEFAULT_ROLE, "admin", True)
    assert caller.scope is None
    assert len(caller.account) == 12
    assert records.load(ResourceKey(caller.account, "role", DEFAULT_ROLE))


def test_a_later_start_finds_the_same_key(identities: Identities, records: SqlRecords) -> None:
    first = identities.ensure_admin(now=NOON)
    add(identities, "aaron")
    assert Identities(records).ensure_admin(now=NOON + HOUR) == first
    assert len(records.users()) == 2


def test_without_an_administrators_key_a_start_creates_none(identities: Identities) -> None:
    identities.add_user("root", now=NOON, is_admin=True, has_key=False)
    assert identities.ensure_admin(now=NOON) is None


def test_keys_look_like_those_of_aws(identities: Identities) -> None:
    lasting = add(identities, "anna")
    temporary = identities.session_token(lasting.account, lifetime=HOUR, now=NOON)
    for key, prefix in ((lasting, "AKIA"), (temporary, "ASIA")):
        assert key.id.startswith(prefix)
        assert (len(key.id), len(key.secret)) == (20, 40)
        assert "=" not in key.secret
        assert key.id.isalnum()
        assert key.secret not in repr(key)


def test_each_user_has_its_own_account(identities: Identities) -> None:
    assert add(identities, "anna").account != add(identities, "ben").account
    with pytest.raises(AlreadyExists):
        identities.add_user("anna", now=NOON)


def test_a_name_that_is_taken_leaves_nothing_behind(identities: Identities, records: SqlRecords) -> None:
    add(identities, "anna")
    before = list(records.export())
    with pytest.raises(AlreadyExists):
        identities.add_user("anna", now=NOON)
    assert [row for row in records.export() if row[0] == "resources"] == [
        row for row in before if row[0] == "resources"
    ]


@pytest.mark.parametrize("key_id", ["AKIAIOSFODNN7EXAMPLE", "", "a b", "AKIA\0", "é" * 20, "A" * 5000])
def test_an_unknown_key_is_refused(identities: Identities, key_id: str) -> None:
    assert reason(identities, key_id) is CredentialProblem.UNKNOWN_KEY
    assert reason(identities, key_id, "token") is CredentialProblem.UNKNOWN_KEY


def test_a_permanent_key_has_no_token(identities: Identities) -> None:
    assert reason(identities, add(identities, "anna").id, "token") is CredentialProblem.INVALID_TOKEN


def test_a_temporary_key_needs_its_token_and_expires(identities: Identities) -> None:
    key = identities.session_token(add(identities, "anna").account, lifetime=HOUR, now=NOON)
    assert identities.resolve(key.id, key.session_token, now=NOON + HOUR - timedelta(seconds=1)).secret == key.secret
    assert reason(identities, key.id) is CredentialProblem.UNKNOWN_KEY
    assert reason(identities, key.id, "é" + (key.session_token or "")) is CredentialProblem.INVALID_TOKEN
    assert reason(identities, key.id, key.session_token, now=NOON + HOUR) is CredentialProblem.EXPIRED_TOKEN


def test_cached_keys_expire_too(identities: Identities) -> None:
    key = identities.session_token(add(identities, "anna").account, lifetime=timedelta(seconds=2), now=NOON)
    identities.resolve(key.id, key.session_token, now=NOON)
    with pytest.raises(InvalidCredential):
        identities.resolve_cached(key.id, key.session_token, now=NOON + timedelta(seconds=2))


def test_an_assumed_role_is_the_caller(identities: Identities) -> None:
    account = add(identities, "anna", is_admin=True).account
    key = identities.assume_role(account, "trainer", session="job-1", lifetime=HOUR, now=NOON)
    caller = identities.resolve(key.id, key.session_token, now=NOON).caller
    assert caller.arn == f"arn:aws:sts::{account}:assumed-role/trainer/job-1"
    assert (caller.user, caller.is_admin, caller.scope) == ("anna", False, account)


def test_a_cached_resolve_never_reads_the_records(identities: Identities, records: SqlRecords) -> None:
    key = add(identities, "anna")
    assert identities.resolve_cached(key.id, None, now=NOON) is None
    resolved = identities.resolve(key.id, None, now=NOON)
    records.close()
    assert identities.resolve_cached(key.id, None, now=NOON) == resolved
    assert identities.resolve_cached(key.id, None, now=NOON + timedelta(minutes=1)) is None
    assert identities.resolve_cached(key.id, None, now=NOON - timedelta(seconds=1)) is None


def test_a_change_through_this_object_takes_effect_at_once(identities: Identities) -> None:
    key = add(identities, "anna")
    identities.resolve(key.id, None, now=NOON)
    identities.delete_access_key(key.account, key.id, now=NOON)
    assert reason(identities, key.id) is CredentialProblem.UNKNOWN_KEY


def test_a_change_through_another_object_takes_effect_within_seconds(
    identities: Identities, records: SqlRecords
) -> None:
    key = add(identities, "anna")
    identities.resolve(key.id, None, now=NOON)
    Identities(records).remove_user(key.account, now=NOON)
    assert reason(identities, key.id, now=NOON + timedelta(seconds=5)) is CredentialProblem.UNKNOWN_KEY


Taking = Callable[[Identities, AccessKey], object]


@pytest.mark.parametrize(
    "take",
    [
        lambda identities, key: identities.delete_access_key(key.account, key.id, now=NOON),
        lambda identities, key: identities.set_key_active(key.account, key.id, is_active=False, now=NOON),
        lambda identities, key: identities.remove_user(key.account, now=NOON),
        lambda identities, key: identities.revoke(key.account, key.id),
    ],
    ids=["deleted", "made inactive", "of a removed user", "revoked"],
)
def test_a_key_that_is_removed_while_it_is_loaded_is_not_cached(
    identities: Identities, records: SqlRecords, monkeypatch: pytest.MonkeyPatch, take: Taking
) -> None:
    add(identities, "root", is_admin=True)
    key = add(identities, "anna")
    inactive_keys = identities.inactive_keys

    def take_after_reading(account: str) -> frozenset[str]:
        """The last read before a key is cached."""
        found = inactive_keys(account)
        monkeypatch.undo()
        take(identities, key)
        return found

    monkeypatch.setattr(identities, "inactive_keys", take_after_reading)
    assert identities.resolve(key.id, None, now=NOON).caller.user == "anna", "the call came before the key was taken"

    assert identities.resolve_cached(key.id, None, now=NOON) is None
    assert reason(identities, key.id) is CredentialProblem.UNKNOWN_KEY


def test_removing_a_user_ends_all_its_credentials(identities: Identities) -> None:
    key = add(identities, "anna")
    session = identities.session_token(key.account, lifetime=HOUR, now=NOON)
    identities.resolve(session.id, session.session_token, now=NOON)
    identities.remove_user(key.account, now=NOON)
    assert reason(identities, key.id) is CredentialProblem.UNKNOWN_KEY
    assert reason(identities, session.id, session.session_token) is CredentialProblem.UNKNOWN_KEY
    with pytest.raises(NotFound):
        identities.user_named("anna")


def test_revoked_credentials_end_at_once_with_all_created_from_them(identities: Identities) -> None:
    account = add(identities, "anna").account
    job = identities.assume_role(account, "r", session="job", lifetime=HOUR, now=NOON)
    child = identities.assume_role(account, "r", session="child", lifetime=12 * HOUR, now=NOON, within=job.id)
    assert child.expires_at == job.expires_at
    identities.resolve(child.id, child.session_token, now=NOON)
    identities.revoke(account, job.id)
    identities.revoke(account, job.id)
    assert reason(identities, job.id, job.session_token) is CredentialProblem.UNKNOWN_KEY
    assert reason(identities, child.id, child.session_token) is CredentialProblem.UNKNOWN_KEY
    assert identities.resolve_cached(child.id, child.session_token, now=NOON) is None


def test_sessions_from_a_permanent_key_outlive_its_replacement(identities: Identities) -> None:
    old = add(identities, "anna")
    session = identities.assume_role(old.account, "r", session="s", lifetime=HOUR, now=NOON, within=old.id)
    identities.create_access_key(old.account, now=NOON)
    identities.delete_access_key(old.account, old.id, now=NOON)
    assert identities.resolve(session.id, session.session_token, now=NOON)


def test_a_user_has_at_most_two_permanent_keys(identities: Identities) -> None:
    account = add(identities, "anna").account
    identities.create_access_key(account, now=NOON)
    with pytest.raises(LimitExceeded):
        identities.create_access_key(account, now=NOON)


def test_the_last_administrator_cannot_be_removed(identities: Identities) -> None:
    first = add(identities, "first", is_admin=True)
    with pytest.raises(Conflict):
        identities.remove_user(first.account, now=NOON)
    with pytest.raises(Conflict):
        identities.delete_access_key(first.account, first.id, now=NOON)
    second = identities.add_user("second", now=NOON, is_admin=True, has_key=False).user
    with pytest.raises(Conflict):
        identities.remove_user(first.account, now=NOON)
    identities.create_access_key(second.account, now=NOON)
    identities.remove_user(first.account, now=NOON)


def test_for_a_day_an_expired_key_is_not_reported_as_unknown(identities: Identities) -> None:
    account = add(identities, "anna").account
    key = identities.session_token(account, lifetime=HOUR, now=NOON)
    soon, late = NOON + 2 * HOUR, NOON + 26 * HOUR
    assert identities.forget_expired(now=soon) == 0
    assert reason(identities, key.id, key.session_token, now=soon) is CredentialProblem.EXPIRED_TOKEN
    assert identities.forget_expired(now=late) == 1
    assert reason(identities, key.id, key.session_token, now=late) is CredentialProblem.UNKNOWN_KEY


def test_cached_keys_are_used_for_less_than_five_seconds(identities: Identities) -> None:
    key = add(identities, "anna")
    identities.resolve(key.id, None, now=NOON)
    assert identities.resolve_cached(key.id, None, now=NOON + timedelta(seconds=4.9)) is not None
    assert identities.resolve_cached(key.id, None, now=NOON + timedelta(seconds=5)) is None


def test_a_key_that_depends_on_a_temporary_key_is_cached_only_with_it(
    identities: Identities, records: SqlRecords
) -> None:
    account = add(identities, "anna").account
    job = identities.assume_role(account, "r", session="job", lifetime=HOUR, now=NOON)
    child = identities.assume_role(account, "r", session="child", lifetime=HOUR, now=NOON, within=job.id)
    fresh = Identities(records)
    resolved = fresh.resolve(child.id, child.session_token, now=NOON)
    assert fresh.resolve_cached(child.id, child.session_token, now=NOON) == resolved
    assert fresh.resolve_cached(job.id, job.session_token, now=NOON) is not None


def test_all_keys_that_depend_on_a_temporary_key_end_with_it(identities: Identities) -> None:
    account = add(identities, "anna").account
    job = identities.assume_role(account, "r", session="job", lifetime=HOUR, now=NOON)
    child = identities.assume_role(account, "r", session="child", lifetime=HOUR / 2, now=NOON, within=job.id)
    later = NOON + HOUR / 4
    grandchild = identities.assume_role(account, "r", session="s", lifetime=12 * HOUR, now=later, within=child.id)
    assert child.expires_at == grandchild.expires_at == NOON + HOUR / 2
    assert identities.resolve(grandchild.id, grandchild.session_token, now=later)
    identities.revoke(account, job.id)
    assert reason(identities, grandchild.id, grandchild.session_token, now=later) is CredentialProblem.UNKNOWN_KEY


def test_a_user_cannot_delete_the_key_of_another(identities: Identities) -> None:
    anna, ben = add(identities, "anna"), add(identities, "ben")
    for key_id in (ben.id, "AKIANONE"):
        with pytest.raises(NotFound, match="access key"):
            identities.delete_access_key(anna.account, key_id, now=NOON)
        for is_active in (False, True):
            with pytest.raises(NotFound, match="access key"):
                identities.set_key_active(anna.account, key_id, is_active=is_active, now=NOON)
    assert identities.inactive_keys(anna.account) == frozenset()
    assert identities.resolve(ben.id, None, now=NOON)


def test_an_inactive_key_is_refused_until_it_is_active_again(identities: Identities) -> None:
    key = add(identities, "anna")
    session = identities.session_token(key.account, lifetime=HOUR, now=NOON)
    identities.resolve(key.id, None, now=NOON)
    for _ in range(2):
        identities.set_key_active(key.account, key.id, is_active=False, now=NOON)
        assert reason(identities, key.id) is CredentialProblem.UNKNOWN_KEY
        assert identities.inactive_keys(key.account) == {key.id}
    assert identities.resolve(session.id, session.session_token, now=NOON)
    for _ in range(2):
        identities.set_key_active(key.account, key.id, is_active=True, now=NOON)
        assert identities.resolve(key.id, None, now=NOON)


def test_a_deleted_key_leaves_no_trace_of_having_been_inactive(identities: Identities) -> None:
    key = add(identities, "anna")
    identities.set_key_active(key.account, key.id, is_active=False, now=NOON)
    identities.delete_access_key(key.account, key.id, now=NOON)
    assert identities.inactive_keys(key.account) == frozenset()


def test_the_last_key_of_an_administrator_may_be_deleted_if_another_administrator_has_one(
    identities: Identities,
) -> None:
    first, second = add(identities, "first", is_admin=True), add(identities, "second", is_admin=True)
    add(identities, "anna")
    identities.set_key_active(second.account, second.id, is_active=False, now=NOON)
    with pytest.raises(Conflict, match="last key of the last administrator"):
        identities.delete_access_key(first.account, first.id, now=NOON)
    identities.set_key_active(second.account, second.id, is_active=True, now=NOON)
    identities.delete_access_key(first.account, first.id, now=NOON)
    with pytest.raises(Conflict, match='"second" is the last administrator with a key'):
        identities.remove_user(second.account, now=NOON)


def test_a_user_who_is_not_an_administrator_can_always_be_removed(identities: Identities) -> None:
    identities.add_user("root", now=NOON, is_admin=True, has_key=False)
    anna = add(identities, "anna")
    identities.delete_access_key(anna.account, anna.id, now=NOON)
    identities.remove_user(anna.account, now=NOON)


def test_credentials_of_a_job_act_as_its_role_under_the_given_id(identities: Identities, records: SqlRecords) -> None:
    account = add(identities, "anna", is_admin=True).account
    key_id = new_key_id()
    key = role_key(key_id, account, "trainer", session="mnist", lifetime=HOUR, now=NOON)
    assert (key.id, key.expires_at, key.created_at) == (key_id, NOON + HOUR, NOON)
    assert is_temporary(key_id)
    records.add_access_key(key)
    caller = identities.resolve(key_id, key.session_token, now=NOON).caller
    assert (caller.role, caller.session, caller.is_admin) == ("trainer", "mnist", False)
    assert caller.access_key_id == key_id


def test_a_session_of_an_administrator_is_an_administrator(identities: Identities) -> None:
    admin = add(identities, "root", is_admin=True)
    assert not is_temporary(admin.id)
    session = identities.session_token(admin.account, lifetime=HOUR, now=NOON)
    caller = identities.resolve(session.id, session.session_token, now=NOON).caller
    assert (caller.user, caller.is_admin, caller.scope) == ("root", True, None)


def test_a_user_has_its_account_its_name_and_the_time_it_was_made(identities: Identities) -> None:
    made = identities.add_user("anna", now=NOON, role="Scientist")
    user = identities.user_named("anna")
    assert user == made.user
    assert (user.role, user.is_admin, user.created_at) == ("Scientist", False, NOON)
    assert made.key is not None
    assert (made.key.account, made.key.created_at, made.key.session_token) == (user.account, NOON, None)
    assert identities.create_access_key(user.account, now=NOON + HOUR).created_at == NOON + HOUR


def test_tokens_and_secrets_are_never_the_same_twice(identities: Identities) -> None:
    account = add(identities, "anna").account
    made = [identities.session_token(account, lifetime=HOUR, now=NOON) for _ in range(3)]
    assert len({key.secret for key in made}) == len({key.session_token for key in made}) == 3
    assert all(len(key.session_token or "") >= 128 for key in made)
