import pytest

from trainyard.foundation.failures import is_platform_failure


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("lost instance", True),
        ("internal error", True),
        ("user error", False),
        ("out of memory", False),
        ("disk full", False),
        ("bad input data", False),
    ],
)
def test_only_the_machine_and_the_yard_are_to_blame_for_some_failures(kind: str, expected: bool) -> None:
    assert is_platform_failure({"kind": kind}) is expected


def test_a_failure_without_a_card_is_nobody_elses() -> None:
    assert not is_platform_failure({})
