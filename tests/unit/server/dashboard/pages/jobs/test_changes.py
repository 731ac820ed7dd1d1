from typing import Any

import pytest

from trainyard.server.dashboard.pages.jobs.changes import MAX_JOBS, jobs_in, tags_in
from trainyard.server.dashboard.visit import BadRequest

JOB = {"kind": "training", "name": "a", "arn": "arn:a"}


def test_a_request_names_jobs_by_kind_name_and_arn() -> None:
    assert jobs_in({"jobs": [JOB]}) == [JOB]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"jobs": []},
        {"jobs": "a"},
        {"jobs": ["a"]},
        {"jobs": [{"kind": "training", "name": "a"}]},
        {"jobs": [JOB | {"name": 1}]},
        {"jobs": [JOB | {"kind": "automl"}]},
        {"jobs": [JOB] * (MAX_JOBS + 1)},
    ],
)
def test_other_jobs_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=f"Name 1 to {MAX_JOBS} jobs"):
        jobs_in(body)


def test_tags_are_added_and_removed_by_key() -> None:
    assert tags_in({"add": {"team": "vision"}, "remove": ["old"]}) == ([{"Key": "team", "Value": "vision"}], ["old"])


@pytest.mark.parametrize(
    "body", [{}, {"add": {}}, {"add": [], "remove": []}, {"add": {"a": 1}, "remove": []}, {"add": {}, "remove": [1]}]
)
def test_other_tags_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="Name the tags"):
        tags_in(body)
