from typing import Any

from trainyard.server.dashboard.pages.jobs.view import PAGE_ROWS, ListView, compact_row


def test_a_view_asks_for_what_its_columns_show() -> None:
    columns = ("status", "metric:loss.min", "metric:loss", "metric:acc.5", "param:lr", "spark:acc", "tag:team")
    view = ListView("bert", "-metric:loss.min", "tag:team", "TOKEN", columns)
    assert view.request() == {
        "Filter": "bert",
        "MaxResults": PAGE_ROWS,
        "SortBy": "metric:loss.min",
        "SortOrder": "Descending",
        "GroupBy": "tag:team",
        "NextToken": "TOKEN",
        # A name may end like an aggregate that there is not.
        "Metrics": ["loss", "acc.5"],
        "HyperParameters": ["lr"],
        "SparklineMetric": "acc",
    }


def test_a_view_without_metrics_asks_for_none() -> None:
    request = ListView("", "", "", "", ("status",)).request()
    # No metric has this name; without one, the server would choose.
    assert request["Metrics"] == ["-"]
    assert "HyperParameters" not in request


def test_columns_that_suit_the_jobs_have_their_most_frequent_metrics() -> None:
    jobs: list[dict[str, Any]] = [{"Metrics": [{"Name": name} for name in names]} for names in ("ab", "bc", "bc")]
    view = ListView("", "", "", "", ()).with_columns_for(jobs, shows_users=False, shows_costs=True)
    shown = ("status", "created", "duration", "type", "cost", "metric:b", "metric:c", "spark:b", "tags")
    assert view.columns == shown


def test_a_row_leaves_out_what_a_job_lacks() -> None:
    job = {"Arn": "arn:a", "Name": "a", "Metrics": [{"Name": "loss", "Count": 0}], "Trials": {"InProgress": 2}}
    assert compact_row(job) == {
        "arn": "arn:a",
        "name": "a",
        "metrics": {"loss": {"count": 0}},
        "trials": {"inprogress": 2},
    }
