import json
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Trainyard
from trainyard.cli.yard.sdk_trial import remedy_of
from trainyard.engines.probe import FRAMEWORK_PACKAGES, PROBES
from trainyard.foundation.extras import EXTRAS
from trainyard.foundation.home import Home


def test_json_has_every_answer_with_what_follows(trainyard: Trainyard, user_home: Path) -> None:
    result = trainyard("doctor", "--json")

    values = json.loads(result.out)
    assert result.code == 0
    assert [row["Name"] for row in values["Machine"]] == [question.name for question in PROBES]
    assert all(set(row) == {"Name", "Ok", "Detail", "Consequence"} for row in values["Machine"] + values["Home"])
    assert values["Home"][0]["Detail"] == "does not exist yet"
    assert list(user_home.iterdir()) == [], "looking makes nothing"


def test_text_has_two_lines_for_each_answer(trainyard: Trainyard) -> None:
    lines = trainyard("doctor").out.splitlines()

    place = next(index for index, line in enumerate(lines) if "user namespaces" in line)
    assert lines[place].split()[0] in ("yes", "no")
    assert lines[place + 1].strip() in (PROBES[0].if_so, PROBES[0].if_not)


def test_a_home_that_is_not_sound_makes_it_fail(trainyard: Trainyard, yard: Home) -> None:
    yard.records_file.write_bytes(b"no database" * 1000)

    result = trainyard("doctor", "--json")

    assert result.code == 1
    assert any("records.sqlite" in row["Detail"] for row in json.loads(result.out)["Home"] if not row["Ok"])


def test_a_newer_home_makes_it_fail_but_tells_of_the_machine(trainyard: Trainyard, yard: Home) -> None:
    yard.version_file.write_text('{"format": 99, "made_by": "9.0.0"}')

    result = trainyard("doctor", "--json")

    assert result.code == 1
    assert "9.0.0" in json.loads(result.out)["Home"][0]["Detail"]
    assert json.loads(result.out)["Machine"]


def test_extras_and_frameworks_are_listed_with_the_command_that_brings_them(
    trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)

    values = json.loads(trainyard("doctor", "--json").out)

    extras = {row["Name"]: row for row in values["Extras"]}
    assert set(extras) == set(EXTRAS)
    assert (extras["s3"]["Ok"], extras["s3"]["Consequence"]) == (False, "pip install 'trainyard[s3]'")
    assert [row["Name"] for row in values["Frameworks"]] == list(FRAMEWORK_PACKAGES)
    assert all(row["Ok"] or "-m pip install" in row["Consequence"] for row in values["Frameworks"])


def test_variables_that_keep_clients_from_the_yard_are_listed(
    trainyard: Trainyard, yard: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.ca_bundle.parent.mkdir(exist_ok=True)
    yard.ca_bundle.write_text("-----BEGIN CERTIFICATE-----\nyard\n-----END CERTIFICATE-----\n")
    monkeypatch.setenv("AWS_PROFILE", "work")

    rows = json.loads(trainyard("doctor", "--json").out)["Shell"]

    assert [(row["Name"], row["Ok"], row["Consequence"]) for row in rows] == [
        ("AWS_PROFILE", False, "unset AWS_PROFILE")
    ]


def test_long_names_of_variables_do_not_touch_what_is_said_about_them(
    trainyard: Trainyard, yard: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/token")
    lines = trainyard("doctor").out.splitlines()
    (line,) = (line for line in lines if "AWS_WEB_IDENTITY_TOKEN_FILE " in line and "unset" not in line)
    assert line.endswith("AWS_WEB_IDENTITY_TOKEN_FILE AWS clients use it instead of the files.")


def test_a_python_without_the_sdk_is_told_how_to_get_it(
    trainyard: Trainyard, yard: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sagemaker.py").write_text("raise ImportError('no SDK here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    result = trainyard("doctor", "--sdk", "--python", sys.executable, "--json")

    (step,) = json.loads(result.out)["Sdk"]
    assert (result.code, step["Name"], step["Ok"]) == (1, "import", False)
    assert "pip install 'sagemaker<3'" in step["Consequence"]


def test_each_kind_of_failure_of_the_sdk_has_a_remedy() -> None:
    assert "AWS_CA_BUNDLE" in remedy_of(OSError("SSL validation failed for https://127.0.0.1:4781/"))
    assert remedy_of(OSError("Could not connect to the endpoint URL")) == "trainyard up --detach"
    assert "trainyard connect" in remedy_of(ValueError("(InvalidClientTokenId) when calling GetCallerIdentity"))
    assert "trainyard status" in remedy_of(KeyError("x"))
