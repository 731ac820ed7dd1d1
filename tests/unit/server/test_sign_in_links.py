from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trainyard.foundation.errors import NotFound
from trainyard.server.identity import Identities
from trainyard.server.records.contract import Query
from trainyard.server.records.sql import SqlRecords, open_records
from trainyard.server.sign_in_links import KIND, LIFETIME, create_link, redeem_link

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[SqlRecords]:
    opened = open_records(f"sqlite:///{tmp_path}/records.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def account(records: SqlRecords) -> str:
    return Identities(records).add_user("anna", now=NOON).user.account


def test_a_link_signs_in_its_user_once(records: SqlRecords, account: str) -> None:
    code = create_link(records, account, now=NOON)
    assert redeem_link(records, code, now=NOON + LIFETIME - SECOND) == account
    with pytest.raises(NotFound):
        redeem_link(records, code, now=NOON + LIFETIME - SECOND)


def test_a_link_expires(records: SqlRecords, account: str) -> None:
    code = create_link(records, account, now=NOON)
    with pytest.raises(NotFound):
        redeem_link(records, code, now=NOON + LIFETIME)


def test_of_several_browsers_with_one_link_one_is_signed_in(records: SqlRecords, account: str) -> None:
    code = create_link(records, account, now=NOON)

    def try_link(_number: int) -> str:
        try:
            return redeem_link(records, code, now=NOON)
        except NotFound:
            return ""

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(try_link, range(16)))
    assert sorted(results) == [""] * 15 + [account]


@pytest.mark.parametrize("code", ["", "guess", "\ud800", "x" * 10_000])
def test_a_guess_is_no_link(records: SqlRecords, account: str, code: str) -> None:
    create_link(records, account, now=NOON)
    with pytest.raises(NotFound):
        redeem_link(records, code, now=NOON)


def test_expired_links_are_removed_and_codes_are_not_kept(records: SqlRecords, account: str) -> None:
    old = create_link(records, account, now=NOON)
    new = create_link(records, account, now=NOON + LIFETIME + SECOND)
    (kept,) = records.find(Query(KIND)).resources
    assert kept.created_at == NOON + LIFETIME + SECOND
    assert old not in repr(kept)
    assert new not in repr(kept)
