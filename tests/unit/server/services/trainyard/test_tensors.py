"""The operations on tensors, with the real reading process, and with what hostile programs may leave."""

import json
import sys
from array import array
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.formats.tensors.runs import GRADIENT, LOSS, WEIGHT, values_at, write_run
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.tensors.jobs import create_job, store, store_folder
from trainyard.formats.tensors.recordings.layout import MANIFEST_SUFFIX
from trainyard.server.services.trainyard import OPERATIONS
from trainyard.server.tensors.reader import TensorReader
from trainyard.testing.eventually import eventually
from trainyard.wire.fault import Fault

STEPS = 100


@pytest.fixture
def reading(anna: As, tmp_path: Path) -> Iterator[As]:
    """A user whose yard reads tensors, with a job that captures them."""
    reader = TensorReader(anna.yard.objects, tmp_path / "cache" / "tensors", limit=timedelta(seconds=60))
    user = replace(anna, yard=replace(anna.yard, tensors=reader))
    create_job(user)
    yield user
    reader.close()
    assert not (tmp_path / "cache" / "tensors").exists()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "run", STEPS)
    return tmp_path / "run"


@pytest.fixture
def recorded(reading: As, run: Path) -> As:
    store_folder(reading, run)
    return reading


def ask(user: As, operation: str, **asked: Any) -> dict[str, Any]:
    return user("trainyard", operation, TrainingJobName="mnist", **asked)


def floats(blob: bytes, kind: str = "f") -> list[float]:
    return list(array(kind, blob))


def test_tensors_are_listed_in_pages_with_their_counts(recorded: As) -> None:
    first = ask(recorded, "ListTensors", MaxResults=2)
    assert [each["Name"] for each in first["Tensors"]] == [WEIGHT, LOSS]
    assert first["Tensors"][0] == {
        "Name": WEIGHT,
        "Kind": "weight",
        "Shape": [2, 3],
        "DataType": "float32",
        "Collections": ["weights"],
        "Module": "fc",
        "WholeShape": None,
        "Workers": ["worker_0"],
        "Measures": ["update_ratio"],
    }
    rest = ask(recorded, "ListTensors", NextToken=first["NextToken"])
    assert [each["Name"] for each in rest["Tensors"]] == [GRADIENT]
    assert rest["NextToken"] is None
    assert (first["TotalCount"], first["FirstStep"], first["LastStep"]) == (3, 0, STEPS - 1)
    assert first["SavedSteps"] == list(range(0, STEPS, 10))
    assert {each["Name"]: each["Count"] for each in first["Kinds"]} == {"weight": 1, "loss": 1, "gradient": 1}
    assert first["HasEnded"]
    assert first["Notes"] == []


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"NamePattern": "^grad.*fc"}, [GRADIENT]),
        ({"Collection": "losses"}, [LOSS]),
        ({"Kind": "weight"}, [WEIGHT]),
        ({"TensorNames": [GRADIENT, "nothing"]}, [GRADIENT]),
        ({"Kind": "weight", "Collection": "losses"}, []),
    ],
)
def test_a_choice_selects_by_everything_it_names(recorded: As, choice: dict[str, Any], names: list[str]) -> None:
    assert [each["Name"] for each in ask(recorded, "ListTensors", **choice)["Tensors"]] == names
    assert ask(recorded, "ReadTensorStatistics", **choice)["TensorNames"] == names


def test_statistics_come_as_layers_by_steps(recorded: As) -> None:
    found = ask(recorded, "ReadTensorStatistics", Statistic="max", MaxSteps=10, Kind="weight")
    assert found["FirstSteps"] == list(range(0, STEPS, 10))
    assert found["LastSteps"] == list(range(9, STEPS, 10))
    assert floats(found["Maxima"])[0] == pytest.approx(values_at(0, 0).max())
    assert floats(found["Minima"])[-1] == pytest.approx(values_at(99, 0).max())
    assert floats(found["Contents"], "B") == [1] * 10
    page = ask(recorded, "ReadTensorStatistics", MaxResults=1, StartStep=20, EndStep=29)
    assert (page["TensorNames"], page["NextToken"], page["TotalCount"]) == ([WEIGHT], "1", 3)
    assert page["LastSteps"][-1] == 29


def test_measures_are_only_those_of_the_tensors_that_have_them(recorded: As) -> None:
    assert ask(recorded, "ReadTensorStatistics", Statistic="update_ratio")["TensorNames"] == [WEIGHT]
    assert ask(recorded, "ReadTensorStatistics", Statistic="value")["TensorNames"] == [LOSS]
    assert ask(recorded, "ReadTensorStatistics", Statistic="nonsense")["TensorNames"] == []


def test_a_distribution_is_computed_from_saved_values(recorded: As) -> None:
    found = ask(recorded, "ReadTensorHistograms", TensorName=WEIGHT, MaxSteps=3)
    assert found["Steps"] == [0, 40, 90]
    assert len(floats(found["Edges"], "d")) == found["BinCount"] + 1
    assert sum(floats(found["Counts"], "I")) == 3 * 6
    assert "evenly spread" in found["Notes"][0]
    assert "save_interval" in ask(recorded, "ReadTensorHistograms", TensorName=GRADIENT)["Notes"][0]


def test_values_of_a_step_come_as_a_matrix_with_the_statistics_of_all(recorded: As) -> None:
    found = ask(recorded, "ReadTensorValues", TensorName=WEIGHT, Step=10, FirstColumn=1)
    assert (found["RowCount"], found["ColumnCount"]) == (2, 3)
    assert (found["ShownRows"], found["ShownColumns"]) == (2, 2)
    assert floats(found["Values"], "d") == pytest.approx(values_at(10, 0)[:, 1:].reshape(-1).tolist())
    statistics = {each["Name"]: each["Value"] for each in found["Statistics"]}
    assert statistics["max"] == pytest.approx(values_at(10, 0).max())
    assert statistics["zeros"] == 1
    unsaved = ask(recorded, "ReadTensorValues", TensorName=WEIGHT, Step=11)
    assert unsaved["Values"] == b""
    assert "not saved in step 11" in unsaved["Notes"][0]
    assert unsaved["Statistics"]


@pytest.mark.parametrize(
    ("operation", "asked", "said"),
    [
        ("ReadTensorHistograms", {"TensorName": "nothing"}, "nothing"),
        ("ReadTensorValues", {"TensorName": "nothing", "Step": 1}, "nothing"),
        ("ReadTensorValues", {"TensorName": WEIGHT, "Step": 5000}, "5000"),
        ("ListTensors", {"NamePattern": "("}, "regular expression"),
        ("ReadTensorStatistics", {"Mode": "SLEEP"}, "SLEEP"),
        ("ReadTensorStatistics", {"Worker": "worker_7"}, "worker_7"),
        ("ListTensors", {"NextToken": "x"}, "NextToken"),
    ],
)
def test_what_is_not_there_is_said(recorded: As, operation: str, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(Fault, match=said):
        ask(recorded, operation, **asked)


def test_a_growing_run_shows_what_is_new(reading: As, tmp_path: Path) -> None:
    assert "no tensors yet" in ask(reading, "ListTensors")["Notes"][0]
    write_run(tmp_path / "first", 20, ends=False)
    store_folder(reading, tmp_path / "first")
    assert ask(reading, "ListTensors")["LastStep"] == 19
    write_run(tmp_path / "first", 60)
    store_folder(reading, tmp_path / "first")
    # What is remote is looked at once a second at most.
    eventually(lambda: ask(reading, "ListTensors")["LastStep"] == 59)


def test_a_torn_file_is_read_up_to_the_tear(reading: As, run: Path) -> None:
    (segment,) = (run / "steps" / "worker_0").iterdir()
    segment.write_bytes(segment.read_bytes()[:-3000])
    store_folder(reading, run)
    found = ask(reading, "ListTensors")
    assert 0 < found["StepCount"] < STEPS


@pytest.mark.parametrize(
    ("rubbish", "told"),
    # The last could be the start of a message that is still being written.
    [
        (b"", 0),
        (b"not an Arrow stream at all", 1),
        (b"\xff" * 5000, 1),
        (b"\xff\xff\xff\xff\0\0\0\x7f" + b"\0" * 100, 0),
    ],
    ids=["empty", "text", "ones", "huge length"],
)
def test_a_foreign_file_between_the_others_is_left_out(reading: As, run: Path, rubbish: bytes, told: int) -> None:
    store_folder(reading, run)
    store(reading, "steps/worker_0/9999999999999-000000000000.arrows", rubbish)
    found = ask(reading, "ReadTensorStatistics", Kind="weight", MaxSteps=10)
    assert found["LastSteps"][-1] == STEPS - 1
    assert len(ask(reading, "ListTensors")["Notes"]) == told


def test_a_damaged_manifest_leaves_the_other_workers(reading: As, run: Path) -> None:
    store_folder(reading, run)
    store(reading, f"worker_1{MANIFEST_SUFFIX}", b'{"worker": ["no"], "workers": {}')
    store(reading, f"worker_2{MANIFEST_SUFFIX}", b"[" * 100_000)
    found = ask(reading, "ListTensors")
    assert found["Workers"] == ["worker_0"]
    assert found["TotalCount"] == 3
    assert any("worker_1" in note for note in found["Notes"])


def test_damaged_values_harm_only_the_question_about_them(reading: As, run: Path) -> None:
    store_folder(reading, run)
    store(reading, "values/worker_0/000000000010.safetensors", b"\xff" * 100)
    with pytest.raises(Fault, match="safetensors"):
        ask(reading, "ReadTensorValues", TensorName=WEIGHT, Step=10)
    assert ask(reading, "ReadTensorValues", TensorName=WEIGHT, Step=20)["ShownRows"] == 2


def test_a_trial_that_ends_the_process_rests_for_a_while(recorded: As, tmp_path: Path) -> None:
    dying = TensorReader(recorded.yard.objects, tmp_path / "dying", command=(sys.executable, "-c", "exit(1)"))
    user = replace(recorded, yard=replace(recorded.yard, tensors=dying))
    with pytest.raises(Fault, match="without an answer"):
        ask(user, "ListTensors")
    with pytest.raises(Fault, match="in a minute"):
        ask(user, "ListTensors")
    dying.close()
    assert ask(recorded, "ListTensors")["TotalCount"] == 3


def test_others_see_nothing_and_an_administrator_everything(recorded: As, accounts: Accounts) -> None:
    ben, admin = (replace(user, yard=recorded.yard) for user in (accounts.ben, accounts.admin))
    for operation in ("ListTensors", "ReadTensorStatistics", "ListRecordedSteps"):
        assert operation in OPERATIONS
        with pytest.raises(Fault, match="no training job"):
            ask(ben, operation)
    assert ask(admin, "ListTensors")["TotalCount"] == 3


def test_a_job_without_a_hook_says_how_to_get_one(reading: As) -> None:
    create(reading, "plain")
    with pytest.raises(Fault, match="debugger_hook_config"):
        reading("trainyard", "ListTensors", TrainingJobName="plain")


def test_recorded_steps_are_listed_with_what_they_are_for(reading: As) -> None:
    about = {"first": 28, "step": 30, "why": "the loss is nan"}
    store(reading, "records/worker_0/000000000030/state.safetensors", b"x" * 1000)
    store(reading, "records/worker_0/000000000030/record.json", json.dumps(about).encode())
    store(reading, "records/worker_0/000000000040/state.safetensors", b"x")
    store(reading, "records/worker_0/000000000050/record.json", b"[" * 100_000)
    listed = ask(reading, "ListRecordedSteps")
    first, second, third = listed["Steps"]
    assert (first["Step"], first["FirstStep"], first["Reason"], first["IsComplete"]) == (
        30,
        28,
        "the loss is nan",
        True,
    )
    assert first["SizeInBytes"] == 1000 + len(json.dumps(about))
    assert {each["Name"] for each in first["Files"]} == {"state.safetensors", "record.json"}
    assert first["Location"] == "s3://data/debug/mnist/debug-output/records/worker_0/000000000030/"
    assert (second["IsComplete"], third["IsComplete"]) == (False, False)
