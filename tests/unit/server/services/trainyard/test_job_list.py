from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import Accounts, As, open_accounts
from tests.unit.server.services.sagemaker.requests import create, prepare
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from tests.unit.server.services.sagemaker.tuning.requests import create_tuning
from tests.unit.server.services.trainyard.test_jobs import SPOT, start
from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.foundation.jobs.attempts import Attempt, InstanceState, MetricSummary
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.jobs.training import KIND
from trainyard.server.records.contract import ResourceKey
from trainyard.server.services.trainyard.job_list import listing
from trainyard.wire.fault import Fault

CODE = {"sagemaker_program": "t.py", "sagemaker_submit_directory": "s3://data/code/sourcedir.tar.gz"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    with open_accounts(tmp_path_factory.mktemp("yard")) as accounts:
        fill(accounts)
        yield accounts


def fill(accounts: Accounts) -> None:
    """Create six training jobs and a tuning job of anna, and a training job of ben."""
    anna = prepare(accounts.anna)
    for number, name in enumerate(["bert-1", "bert-2", "Mnist-1", "mnist-2", "mnist-3", "waits"]):
        create(
            anna.at(seconds(number)),
            name,
            HyperParameters=CODE | {"lr": f"{10**-number}", "optimizer": '"adam"' if number % 2 else '"sgd"'},
            Tags=[{"Key": "team", "Value": "text" if name.startswith("bert") else "vision"}],
            **(SPOT if name == "bert-1" else {}),
        )
    for number, (name, losses) in enumerate(
        {"bert-1": (1.0, 0.2, 2.0), "bert-2": (0.5, 0.5, 0.9), "Mnist-1": (0.25, 0.25, 3.0)}.items(), 2
    ):
        end(anna, name, SecondaryStatus.FAILED if name == "bert-2" else SecondaryStatus.COMPLETED, number, losses)
    start(anna, name="mnist-3")
    create_tuning(anna.at(seconds(7)), "search")
    create(prepare(accounts.ben).at(seconds(8)), "bens", HyperParameters=CODE)


def end(
    user: As, name: str, status: SecondaryStatus, hours: int, losses: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> None:
    last, lowest, highest = losses
    loss = MetricSummary(last, seconds(4), 3, lowest=lowest, highest=highest)
    instance = InstanceState("algo-1", metrics={"val:loss": loss, "acc": replace(loss, value=1 - last)})
    at = seconds(10) + timedelta(hours=hours)
    job = advance(load(user, name), SecondaryStatus.STARTING, at=seconds(9))
    job = advance(job, SecondaryStatus.TRAINING, at=seconds(10))
    job = replace(job, attempts=(Attempt(1, seconds(9), "KEY", (instance,), ended_at=at),))
    failure = "RuntimeError: no luck\nmore" if status is SecondaryStatus.FAILED else ""
    remember(user, advance(replace(job, failure=failure), status, at=at))


@pytest.fixture
def anna(filled: Accounts) -> As:
    return filled.anna.at(seconds(20))


def names(user: As, text: str = "", **asked: Any) -> list[str]:
    """Return the names on all pages."""
    found: list[str] = []
    asked = {"Filter": text, **asked}
    while True:
        page = user("trainyard", "ListJobs", **asked)
        found += [each["Name"] for each in page["Jobs"]]
        if not page.get("NextToken"):
            return found
        asked["NextToken"] = page["NextToken"]


ALL = ["search", "waits", "mnist-3", "mnist-2", "Mnist-1", "bert-2", "bert-1"]


FILTERS = [
    ("", ALL),
    ("mnist", ["mnist-3", "mnist-2", "Mnist-1"]),
    ("nist 2", ["mnist-2"]),
    ("-mnist kind:training", ["waits", "bert-2", "bert-1"]),
    ('"bert-1"', ["bert-1"]),
    ('failure="RuntimeError: no luck"', ["bert-2"]),
    ('failure="RuntimeError: no, luck"', []),
    ('failure:",",luck', ["bert-2"]),
    ('tag:"team"="text","vision" mnist-2', ["mnist-2"]),
    (r'"created:\"x\""', []),
    ('"val:loss"<0.5', ["Mnist-1"]),
    ("kind:tuning", ["search"]),
    ("status:completed", ["Mnist-1", "bert-1"]),
    ("status:completed,failed -name:mnist", ["bert-2", "bert-1"]),
    ("status:waiting", ["waits", "mnist-2"]),
    ("status:running kind:training", ["mnist-3"]),
    ("phase:failed", ["bert-2"]),
    ("val:loss<0.5", ["Mnist-1"]),
    ("val:loss<=0.5", ["Mnist-1", "bert-2"]),
    ("val:loss.min<0.5 val:loss.max<=2", ["bert-1"]),
    ("metric:val:loss.best=0.2", ["bert-1"]),
    ("has:acc lr<1", ["Mnist-1", "bert-2"]),
    ("param:lr>=0.01 -lr=1", ["Mnist-1", "bert-2"]),
    ("optimizer=sgd", ["mnist-3", "Mnist-1", "bert-1"]),
    ("optimizer!=sgd kind:training", ["waits", "mnist-2", "bert-2"]),
    ("tag:team=text", ["bert-2", "bert-1"]),
    ("tag:team=text,vision mnist-2", ["mnist-2"]),
    ("tag:team -tag:team=vision", ["bert-2", "bert-1"]),
    ("tag:team!=vision kind:training", ["bert-2", "bert-1"]),
    ("user:anna spot:yes", ["bert-1"]),
    ("user:ben", []),
    ("created>17s", ["search", "waits", "mnist-3"]),
    ("created<2026-07-01T12:00:01.5 created>2026-07-01", ["bert-2", "bert-1"]),
    ("duration>3h", ["Mnist-1"]),
    ("failure:luck", ["bert-2"]),
    ("cost>0 -status:running", ["Mnist-1", "bert-2", "bert-1"]),
    ("status:completed sort:name", ["Mnist-1", "bert-1"]),
    ("has:acc sort:-val:loss", ["bert-1", "bert-2", "Mnist-1"]),
]


@pytest.mark.parametrize(("text", "expected"), FILTERS)
def test_a_filter_finds_what_a_person_means(anna: As, text: str, expected: list[str]) -> None:
    assert names(anna, text) == expected
    assert names(anna, text, MaxResults=1) == expected


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("status:broken", 'In the filter, "status:broken" has "broken", which is no status; write one of waiting, run'),
        ("status:InProgress", "write status:running,waiting"),
        ("status:training", "write phase:training"),
        ("loss<much", '"loss<much" compares with "much", which is no number; write a number, as in loss<0.5'),
        ("created>soon", "write 7d for seven days ago, or 2026-01-31"),
        ("created:7d", "write created>7d"),
        ("name<5", "compares name, which is a text, by size; write name:5"),
        ("owner:ann", 'asks for "owner", which is no field; the fields are name, status'),
        ("loss<", '"loss<" has no value; write one after <'),
        ("<5", "write the name of a column, as in loss<0.5"),
        ("tag:", "write tag:team or tag:team=vision"),
        ("has:", "write has:loss"),
        ("sort:", "write sort:created"),
        ('a "b c', 'write "two words"'),
        ("x " * 51, "has 51 parts; at most 50"),
    ],
)
def test_a_wrong_filter_is_named_with_what_would_be_right(anna: As, text: str, advice: str) -> None:
    with pytest.raises(Fault) as refused:
        names(anna, text)
    assert refused.value.code == "ValidationException"
    assert advice in refused.value.message


@pytest.mark.parametrize(
    ("sort_by", "expected"),
    [
        ("created", ALL[::-1]),
        ("name", ["Mnist-1", "bert-1", "bert-2", "mnist-2", "mnist-3", "search", "waits"]),
        ("metric:val:loss", ["Mnist-1", "bert-2", "bert-1"]),
        ("val:loss.min", ["bert-1", "Mnist-1", "bert-2"]),
        ("acc.max", ["bert-2", "bert-1", "Mnist-1"]),
        ("param:lr", ["waits", "mnist-3", "mnist-2", "Mnist-1", "bert-2", "bert-1"]),
        ("tag:team", ["bert-1", "bert-2"]),
    ],
)
def test_jobs_are_sorted_by_any_column_and_pages_follow_each_other(anna: As, sort_by: str, expected: list[str]) -> None:
    assert names(anna, SortBy=sort_by)[: len(expected)] == expected
    # Jobs without a value come last in either direction.
    found = names(anna, "-search", SortBy=sort_by, SortOrder="Descending", MaxResults=2)
    assert sorted(found) == sorted(set(ALL) - {"search"})
    upwards = [each for each in names(anna, "-search", SortBy=sort_by) if each in expected]
    if sort_by in ("created", "name", "metric:val:loss", "param:lr"):
        assert [each for each in found if each in expected] == upwards[::-1]


def test_a_row_says_what_a_table_shows(anna: As) -> None:
    told = anna("trainyard", "ListJobs", Filter="bert-1", HyperParameters=["lr", "none"])
    (row,) = told["Jobs"]
    assert (row["Kind"], row["UserName"], row["State"], row["Status"]) == ("training", "anna", "completed", "Completed")
    assert (row["InstanceCount"], row["Spot"], row["DurationInSeconds"]) == (1, True, 7200)
    assert row["HyperParameters"] == {"lr": "1"}
    assert row["Tags"] == [{"Key": "team", "Value": "text"}]
    accuracy, loss = row["Metrics"]
    assert (loss["Name"], loss["Last"], loss["Min"], loss["Max"], loss["Best"]) == ("val:loss", 1.0, 0.2, 2.0, 0.2)
    assert (accuracy["Name"], accuracy["Best"]) == ("acc", 2.0)
    assert row["Cost"] == pytest.approx(2 * row["PricePerHour"])
    described = anna("trainyard", "DescribeJob", TrainingJobName="bert-1")
    assert row["Cost"] == pytest.approx(described["Cost"])
    assert told["Total"] == 1
    assert anna("trainyard", "ListJobs", Filter="bert-1", CountTotal=False)["Total"] is None
    (row,) = anna("trainyard", "ListJobs", Filter="status:failed")["Jobs"]
    assert row["FailureReason"] == "RuntimeError: no luck"
    (row,) = anna("trainyard", "ListJobs", Filter="kind:tuning")["Jobs"]
    assert (row["Name"], row["ObjectiveDirection"], row["Trials"]["Completed"]) == ("search", "Minimize", 0)


def test_waiting_jobs_have_a_position_and_a_reason(anna: As) -> None:
    last, first = anna("trainyard", "ListJobs", Filter="status:waiting kind:training")["Jobs"]
    assert (first["Name"], first["QueuePosition"]) == ("mnist-2", 1)
    assert "slots of" in first["WaitReason"]
    assert (last["Name"], last["QueuePosition"]) == ("waits", 2)
    assert last["WaitReason"].startswith("1 job is ahead of it")


def test_users_see_their_own_jobs_and_administrators_all(filled: Accounts, anna: As) -> None:
    assert names(filled.ben) == ["bens"]
    assert names(filled.admin) == ["bens", *ALL]
    assert names(filled.admin, "user:ben") == ["bens"]
    assert names(filled.admin, "user:ben", SortBy="lr") == ["bens"]


def test_a_token_belongs_to_its_list(anna: As) -> None:
    token = anna("trainyard", "ListJobs", MaxResults=1)["NextToken"]
    for asked in ({"Filter": "mnist"}, {"SortBy": "name"}):
        with pytest.raises(Fault, match="does not belong to this list"):
            anna("trainyard", "ListJobs", NextToken=token, **asked)
    with pytest.raises(Fault, match="does not belong to this list"):
        anna("trainyard", "ListJobs", NextToken="e30=")


def test_groups_and_sums_cover_all_pages(anna: As) -> None:
    told = anna("trainyard", "ListJobs", GroupBy="tag:team", Summarize=True, MaxResults=1)
    vision, text, none = told["Groups"]
    assert [(each.get("Value"), each["Jobs"]) for each in (vision, text, none)] == [
        ("vision", 4),
        ("text", 2),
        (None, 1),
    ]
    assert {"State": "failed", "Jobs": 1} in text["States"]
    assert told["Summary"]["Jobs"] == told["Total"] == 7
    assert told["Summary"]["Cost"] == pytest.approx(vision["Cost"] + text["Cost"])
    assert told["Summary"]["CostPerHour"] > 0


def test_a_page_that_the_caller_knows_is_not_sent_again(accounts: Accounts) -> None:
    anna = prepare(accounts.anna)
    for name in ("a", "b"):
        create(anna, name)
    first = anna("trainyard", "ListJobs")
    again = anna("trainyard", "ListJobs", KnownVersion=first["Version"])
    assert (again["Jobs"], again["IsUnchanged"]) == ([], True)
    anna("sagemaker", "StopTrainingJob", TrainingJobName="a")
    changed = anna("trainyard", "ListJobs", KnownVersion=first["Version"])
    assert {each["Name"]: each["State"] for each in changed["Jobs"]} == {"a": "stopped", "b": "waiting"}
    known = [each["Revision"] for each in first["Jobs"]]
    brief = {each["Name"]: each for each in anna("trainyard", "ListJobs", KnownRevisions=known)["Jobs"]}
    assert brief["a"]["State"] == "stopped"
    assert (brief["b"]["IsUnchanged"], "State" in brief["b"]) == (True, False)


def test_groups_are_sent_again_when_a_job_of_another_page_changes(accounts: Accounts) -> None:
    anna = prepare(accounts.anna)
    for number, name in enumerate(("a", "b")):
        create(anna.at(seconds(number)), name)
    asked = {"GroupBy": "status", "MaxResults": 1}
    first = anna("trainyard", "ListJobs", **asked)
    anna("sagemaker", "StopTrainingJob", TrainingJobName="a")
    changed = anna("trainyard", "ListJobs", KnownVersion=first["Version"], **asked)
    assert {each["Value"]: each["Jobs"] for each in changed["Groups"]} == {"stopped": 1, "waiting": 1}


def test_columns_and_values_are_told_for_completion(filled: Accounts, anna: As) -> None:
    told = anna("trainyard", "ListJobColumns")
    assert {"Name": "kind", "Type": "word", "About": "training or tuning"} in told["Fields"]
    assert (told["Metrics"], told["HyperParameters"]) == (["acc", "val:loss"], ["lr", "optimizer"])
    assert told["TagKeys"] == [{"Key": "team", "Values": ["vision", "text"]}]
    assert told["UserNames"] == ["anna"]
    assert filled.ben("trainyard", "ListJobColumns")["TagKeys"] == []


def test_the_tags_of_most_jobs_are_told_first(accounts: Accounts) -> None:
    anna = prepare(accounts.anna)
    for number, keys in enumerate((("rare", "often"), ("often", "also-rare"))):
        create(anna.at(seconds(number)), f"job-{number}", Tags=[{"Key": key, "Value": f"{number}"} for key in keys])
    told = anna("trainyard", "ListJobColumns")["TagKeys"]
    assert [each["Key"] for each in told] == ["often", "also-rare", "rare"]
    assert told[0]["Values"] == ["0", "1"]


def test_pages_are_stable_while_jobs_are_added(accounts: Accounts) -> None:
    anna = prepare(accounts.anna)
    for number in range(4):
        create(anna.at(seconds(number)), f"job-{number}", HyperParameters=CODE | {"lr": str(number)})
    for sort in ("created", "param:lr", "name"):
        asked = {"SortBy": sort, "SortOrder": "Descending", "MaxResults": 2}
        first = anna("trainyard", "ListJobs", **asked)
        name = f"new-{sort[:4].rstrip(':')}"
        create(anna.at(seconds(9)), name, HyperParameters=CODE | {"lr": "99"})
        second = anna("trainyard", "ListJobs", NextToken=first["NextToken"], **asked)
        found = [each["Name"] for page in (first, second) for each in page["Jobs"]]
        assert [each for each in found if each.startswith("job")] == sorted(
            (each for each in found if each.startswith("job")), reverse=True
        )
        assert len(found) == len(set(found)) == 4
        assert name not in [each["Name"] for each in second["Jobs"]]
        anna("sagemaker", "StopTrainingJob", TrainingJobName=name)
        anna("sagemaker", "DeleteTrainingJob", TrainingJobName=name)


def test_a_filter_that_no_index_answers_reads_a_bounded_number_of_jobs(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna = prepare(accounts.anna)
    for number in range(7):
        create(anna.at(seconds(number)), f"job-{number}", HyperParameters=CODE | {"lr": str(number)})
    monkeypatch.setattr(listing, "MAX_SCANNED", 3)
    page = anna("trainyard", "ListJobs", Filter="lr=0")
    assert (page["Jobs"], bool(page["NextToken"])) == ([], True)
    assert names(anna, "lr=0") == ["job-0"]
    assert names(anna, "lr<2", MaxResults=1) == ["job-1", "job-0"]
    monkeypatch.setattr(listing, "MAX_SORTED", 3)
    with pytest.raises(Fault, match="More than 3 jobs are too many to sort"):
        names(anna, SortBy="param:lr")


def test_a_sparkline_is_read_for_the_page_only(accounts: Accounts) -> None:
    anna = prepare(accounts.anna)
    create(anna)
    create(anna, "other")
    end(anna, "mnist", SecondaryStatus.COMPLETED, 1)
    job = anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist"))
    folder = InstanceRef(AttemptRef(job.id, 1), "algo-1").folder(Path(anna.yard.compute.jobs))
    PointsFile(series_file(folder.metrics, "val:loss")).append(
        Point.of(float(number), number) for number in range(1000)
    )
    told = anna("trainyard", "ListJobs", SparklineMetric="val:loss")["Jobs"]
    rows = {each["Name"]: each.get("Sparkline") for each in told}
    assert rows["other"] is None
    assert len(rows["mnist"]) == 48
    assert rows["mnist"] == sorted(rows["mnist"])
    assert "Sparkline" not in anna("trainyard", "ListJobs")["Jobs"][0]
