import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Trainyard
from trainyard.foundation.home import Home

YARD = {
    "Engine": "local",
    "SlotsInUse": 1,
    "Slots": 2,
    "RunningJobs": [{"Engine": "local"}],
    "QueuedJobs": 3,
    "WarmWorkers": [],
}


@pytest.fixture(autouse=True)
def answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The response of DescribeYard. No server is listening at the address of this fake yard."""
    told: dict[str, Any] = dict(YARD)
    monkeypatch.setattr("trainyard.cli.yard.status.describe_yard", lambda _: told or None)
    # Nor has it a certificate.
    monkeypatch.setattr("trainyard.cli.yard.status.authority_fingerprint", lambda _: "5A:0C")
    return told


def test_json_tells_where_the_yard_is_and_what_it_has(trainyard: Trainyard, yard: Home) -> None:
    result = trainyard("status", "--json")

    values = json.loads(result.out)
    capacity, told = values.pop("Capacity"), values.pop("Yard")
    assert result.code == 0
    assert values == {
        "Running": True,
        "Pid": os.getpid(),
        "Http": "http://127.0.0.1:4780",
        "Https": "https://127.0.0.1:4781",
        "Home": str(yard.root),
        "Reachable": "",
        "Version": "0.1.0",
    }
    assert told == YARD
    assert set(capacity) == {"Cores", "MemoryBytes", "Gpus", "DiskFreeBytes"}


def test_text_has_one_line_for_each_fact(trainyard: Trainyard, yard: Home) -> None:
    lines = trainyard("status").out.splitlines()

    titles = ["http", "https", "pid", "home", "version", "capacity", "sha-256", "slots", "jobs", "warm"]
    assert [line.split()[0] for line in lines] == titles
    assert lines[0].split()[1] == "http://127.0.0.1:4780"
    # What a user who logs in over ssh compares.
    assert "sha-256   5A:0C, of the certificate authority" in lines
    assert lines[-3:] == ["slots     1 of 2 in use", "jobs      1 running, 3 waiting", "warm      no workers"]


def test_jobs_of_other_engines_than_the_first_are_counted(
    trainyard: Trainyard, yard: Home, answer: dict[str, Any]
) -> None:
    answer["RunningJobs"] = [{"Engine": name} for name in ("local", "ray", "container", "ray")]

    assert "jobs      4 running (1 on container, 2 on ray), 3 waiting" in trainyard("status").out.splitlines()


def test_a_yard_that_does_not_answer_is_said(trainyard: Trainyard, yard: Home, answer: dict[str, Any]) -> None:
    answer.clear()

    result = trainyard("status")

    assert result.out.splitlines()[-1].startswith("sha-256")
    assert "does not answer" in result.err
    assert str(yard.server_log) in result.err


def test_without_a_yard_the_exit_code_says_so(trainyard: Trainyard, user_home: Path) -> None:
    text, as_json = trainyard("status"), trainyard("status", "--json")

    assert text.code == as_json.code == 4
    assert text.out == ""
    assert "No yard is running" in text.err
    assert json.loads(as_json.out) == {"Running": False, "Home": str(user_home / ".trainyard")}


def test_the_home_comes_from_the_variable_and_the_option_wins(
    trainyard: Trainyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_HOME", str(tmp_path / "variable"))

    by_variable = json.loads(trainyard("status", "--json").out)
    by_option = json.loads(trainyard("status", "--json", "--home", str(tmp_path / "option")).out)

    assert by_variable["Home"] == str(tmp_path / "variable")
    assert by_option["Home"] == str(tmp_path / "option")


def test_asking_makes_no_home(trainyard: Trainyard, user_home: Path) -> None:
    trainyard("status")

    assert list(user_home.iterdir()) == []


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({}, "storage   1.0 GiB of objects, 512.0 MiB of disk reserved"),
        ({"LimitBytes": 2 << 30}, "storage   1.0 GiB of 2.0 GiB of objects, 512.0 MiB of disk reserved"),
        (
            {"ReserveIsTouched": True},
            "storage   1.0 GiB of objects, 512.0 MiB of disk reserved; THE DISK IS FULL, uploads are rejected",
        ),
    ],
)
def test_free_space_for_objects_is_shown_where_the_yard_keeps_them(
    trainyard: Trainyard, yard: Home, answer: dict[str, Any], told: dict[str, Any], line: str
) -> None:
    answer["Storage"] = {"UsedBytes": 1 << 30, "ReserveBytes": 1 << 29, "ReserveIsTouched": False, **told}
    assert line in trainyard("status").out.splitlines()
