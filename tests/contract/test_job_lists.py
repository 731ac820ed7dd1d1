"""Lists of jobs of all kinds are the same on PostgreSQL as on SQLite, where the unit tests run them."""

from collections.abc import Iterator

import pytest

from tests.postgres import PostgresServer
from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import Accounts, open_accounts
from tests.unit.server.services.trainyard.test_job_list import FILTERS, fill, names

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def filled(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    with postgres.database() as url, open_accounts(tmp_path_factory.mktemp("yard"), records_url=url) as accounts:
        fill(accounts)
        yield accounts


def test_filters_find_the_same_jobs(filled: Accounts) -> None:
    anna = filled.anna.at(seconds(20))
    assert [(text, names(anna, text, MaxResults=2)) for text, _ in FILTERS] == FILTERS


@pytest.mark.parametrize("sort_by", ["name", "status", "modified", "metric:val:loss.min", "param:lr", "tag:team"])
def test_orders_have_every_job_once(filled: Accounts, sort_by: str) -> None:
    everything = names(filled.admin, SortBy=sort_by, MaxResults=3)
    assert sorted(everything) == sorted(set(names(filled.admin)))
    assert len(everything) == 8
