"""One yard with two engines: processes of this machine, and a simulated cluster."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.trainees import Trainee
from tests.system.yards import trainee_of
from trainyard.testing.yard import RunningYard, running_yard

LOOPBACK = "trainyard.testing.engines.loopback:open_engine"
HELLO = "print('hello')\n"
ENDLESS = "import time\nprint('waits', flush=True)\ntime.sleep(300)\n"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    home = tmp_path_factory.mktemp("system") / "yard"
    settings = {"TRAINYARD_SERVER_ENGINES": f"local,{LOOPBACK}", "TRAINYARD_SERVER_SLOTS": "1"}
    with running_yard(home, environment=settings) as running:
        yield running


@pytest.fixture(scope="module")
def owner(yard: RunningYard) -> Trainee:
    return trainee_of(yard).prepare()


def told(yard: RunningYard, *command: str) -> Any:
    """Return the JSON output of a command about the yard."""
    program = [sys.executable, "-m", "trainyard.cli", *command, "--json", "--home", str(yard.home.root)]
    return json.loads(subprocess.run(program, capture_output=True, check=True, timeout=60).stdout)


def tagged(engine: str) -> dict[str, Any]:
    return {"Tags": [{"Key": "trainyard:engine", "Value": engine}]}


def test_the_command_line_lists_both_with_their_nodes(yard: RunningYard) -> None:
    local, loopback = told(yard, "engines")["Engines"]

    assert (local["Name"], loopback["Name"]) == ("local", "loopback")
    assert (len(local["Nodes"]), len(loopback["Nodes"])) == (1, 3)
    assert {each["Name"]: "Reason" in each for each in loopback["Capabilities"]}["several nodes"] is False


@pytest.mark.flow
def test_a_tag_sends_a_job_to_an_engine_and_its_description_says_so(yard: RunningYard, owner: Trainee) -> None:
    owner.start("there", HELLO, **tagged("loopback"))
    owner.start("here", HELLO)

    for name in ("there", "here"):
        assert owner.reach(name, "Completed", "Failed")["TrainingJobStatus"] == "Completed"
        assert "hello" in owner.lines(name)
    assert [told(yard, "describe", name)["Engine"] for name in ("there", "here")] == ["loopback", "local"]


def test_a_rule_that_was_written_a_moment_ago_sends_jobs_too(yard: RunningYard, owner: Trainee) -> None:
    yard.home.engines_file.write_text('[[rules]]\nengine = "loopback"\ninstance_type = "ml.c5.*"\n')
    large = {"InstanceType": "ml.c5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}

    assert told(yard, "engines", "check", "--it", "ml.c5.large") == {
        "Engine": "loopback",
        "EngineReason": "rule 1 of engines.toml matches (instance_type = ml.c5.*)",
    }
    assert owner.run("ruled", HELLO, ResourceConfig=large)["TrainingJobStatus"] == "Completed"
    assert told(yard, "describe", "ruled")["Engine"] == "loopback"


def test_a_job_that_waits_for_one_engine_does_not_hold_up_another(yard: RunningYard, owner: Trainee) -> None:
    owner.start("fills", ENDLESS)
    owner.reach("fills", "Training")
    owner.start("waits", HELLO)

    assert owner.run("passes", HELLO, **tagged("loopback"))["TrainingJobStatus"] == "Completed"

    assert owner.describe("waits")["SecondaryStatus"] == "Pending"
    assert told(yard, "status")["Yard"]["RunningJobs"][0]["Engine"] == "local"
    owner.sagemaker.stop_training_job(TrainingJobName="fills")
    assert owner.reach("waits", "Completed", "Failed")["TrainingJobStatus"] == "Completed"


@pytest.mark.slow
def test_jobs_of_a_missing_engine_continue_when_the_yard_has_it_again(tmp_path: Path) -> None:
    both = {"TRAINYARD_SERVER_ENGINES": f"local,{LOOPBACK}"}
    with running_yard(tmp_path / "yard", environment=both) as yard:
        user = trainee_of(yard).prepare()
        user.start("kept", ENDLESS, **tagged("loopback"))
        user.reach("kept", "Training")

    with running_yard(tmp_path / "yard") as yard:
        user = trainee_of(yard)
        assert user.run("other", HELLO)["TrainingJobStatus"] == "Completed"
        described = told(yard, "describe", "kept")
        assert (described["SecondaryStatus"], described["Engine"]) == ("Training", "loopback")
        assert any("started without the engine loopback" in note for note in described["Notes"])

    with running_yard(tmp_path / "yard", environment=both) as yard:
        user = trainee_of(yard)
        user.sagemaker.stop_training_job(TrainingJobName="kept")
        assert user.reach("kept", "Stopped", "Failed")["TrainingJobStatus"] == "Stopped"


def test_a_yard_does_not_start_with_an_engine_that_there_is_not(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "trainyard.cli", "up", "--detach", "--port", "0", "--home", str(tmp_path / "home")]
    ended = subprocess.run(
        [*program, "--engines", "local,slurm"], capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 1
    assert 'names "slurm", which is not an engine; write one or more of local, ray, container' in ended.stderr
