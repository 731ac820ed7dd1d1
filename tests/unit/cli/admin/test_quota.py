import pytest

from tests.unit.cli.conftest import Trainyard
from trainyard.foundation.home import Home


@pytest.mark.parametrize(
    "arguments", [("anna", "ml.m5.large"), ("anna", "ml.m5.large", "many"), ("anna", "ml.m5.large", "-1")]
)
def test_a_quota_needs_a_number(trainyard: Trainyard, yard: Home, arguments: tuple[str, ...]) -> None:
    assert trainyard("quota", "set", *arguments).code == 2


def test_help_quotes_what_a_shell_would_expand(trainyard: Trainyard) -> None:
    assert "trainyard quota set '*' '*' 8" in trainyard("quota", "set", "-h").out


@pytest.mark.parametrize(
    "arguments", [("anna",), ("anna", "much"), ("anna", "-1"), ("anna", "1GB", "--remove"), ("anna", "5 parsecs")]
)
def test_a_storage_quota_needs_a_size_or_goes(trainyard: Trainyard, yard: Home, arguments: tuple[str, ...]) -> None:
    assert trainyard("quota", "storage", *arguments).code == 2
