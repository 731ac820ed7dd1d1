"""The models and a router over them, loaded once."""

import pytest

from trainyard.wire.models import Models
from trainyard.wire.routing import Router


@pytest.fixture(scope="session")
def models() -> Models:
    return Models()


@pytest.fixture(scope="session")
def router(models: Models) -> Router:
    return Router(models, ["127.0.0.1", "yard.example.com"])
