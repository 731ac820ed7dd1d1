import pytest

from tests.unit.cli.conftest import Trainyard


@pytest.mark.parametrize("definition", ["loss", "=x", "loss="])
def test_a_definition_that_is_none_is_a_usage_error(trainyard: Trainyard, definition: str) -> None:
    result = trainyard("metrics", "@last", "--define", definition)
    assert result.code == 2
    assert "is not NAME=REGEX" in result.err
