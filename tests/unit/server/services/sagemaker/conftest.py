import pytest

from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import prepare


@pytest.fixture
def anna(accounts: Accounts) -> As:
    """Return a user with data, code and a role."""
    return prepare(accounts.anna)
