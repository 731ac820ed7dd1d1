import pytest

from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import prepare


@pytest.fixture
def anna(accounts: Accounts) -> As:
    """Return a user who has all that a training job needs."""
    return prepare(accounts.anna)
