import pytest

from trainyard.foundation.clock import utc_now
from trainyard.server.dashboard.pages.job.job_filters import failure_filter, tag_filter
from trainyard.server.services.trainyard.job_list.filters import parse_filter

TEXTS = ["plain", 'with "quotes", commas = and \\ backslashes', "-sort:name <b>", "ends with \\"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_failure_is_found_by_its_whole_text(text: str) -> None:
    *_, condition = parse_filter(failure_filter(f"{text}\nmore"), now=utc_now()).conditions
    assert (condition.column.name, condition.operator, condition.values) == ("failure", "=", (text,))


@pytest.mark.parametrize("text", TEXTS)
def test_a_tag_is_found_by_its_key_and_value(text: str) -> None:
    (condition,) = parse_filter(tag_filter(text, text), now=utc_now()).conditions
    assert (condition.column.name, condition.operator, condition.values) == (text, "=", (text,))
    (condition,) = parse_filter(tag_filter(text, ""), now=utc_now()).conditions
    assert (condition.column.name, condition.operator) == (text, "has")


def test_a_failure_without_a_summary_has_no_filter() -> None:
    assert failure_filter("") == ""
