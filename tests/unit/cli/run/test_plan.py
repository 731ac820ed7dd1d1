from pathlib import Path
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard.cli.run.arguments import InputArgument
from trainyard.cli.run.plan import plan_lines
from trainyard.cli.run.script import require_accepted
from trainyard.cli.terminal.failure import Failure
from trainyard.instance_group import InstanceGroup
from trainyard.pytorch import PyTorch
from trainyard.session import Session
from trainyard.wire.client import CallFailed

SHARE = {"Instance": "algo-1", "Cpus": 2.0, "MemoryBytes": 4 * 1024**3}


def quote(**more: Any) -> dict[str, Any]:
    return {
        "PricePerHour": 0.115,
        "MostCost": 2.76,
        "Shares": [SHARE],
        "Engine": "local",
        "EngineReason": "no rule matches",
        "Notes": [],
        "FreeSlots": 2,
        "QueuedJobs": 0,
    } | more


def plan(told: dict[str, Any], *, shows_price: bool = False, **options: Any) -> dict[str, str]:
    estimator = PyTorch(
        "train.py",
        image_uri="image:1",
        sagemaker_session=Session(api=RecordingApi(), default_bucket="bucket"),
        **({"instance_type": "ml.m5.large"} | options),
    )
    inputs = [InputArgument("data", "s3://b/data")]
    values = {"epochs": 3, "name": "x y"}
    lines = plan_lines(estimator, inputs, hyperparameters=values, quote=told, shows_price=shows_price)
    return {line[:14].strip(): line[14:] for line in lines}


def test_a_plan_says_what_runs_on_what_and_what_it_may_cost() -> None:
    assert plan(quote(PriceIsSet=True), source_dir="src") == {
        "script": "train.py in src",
        "arguments": "--epochs 3 --name x y",
        "image": "image:1",
        "instances": "1 x ml.m5.large",
        "input data": "s3://b/data (FullyReplicated)",
        "output": "s3://bucket/",
        "time limit": "24 h",
        "price": "$0.1150 per hour, at most $2.76 within the time limit",
    }


def test_a_price_that_nobody_set_is_shown_only_on_request() -> None:
    assert "price" not in plan(quote())
    assert plan(quote(), shows_price=True)["price"].startswith("$0.1150 per hour")


def test_a_plan_says_which_engine_runs_it_and_why_unless_that_is_the_usual_one() -> None:
    told = plan(quote(Engine="ray", EngineReason="rule 1 of engines.toml matches"))
    assert told["engine"] == "ray, because rule 1 of engines.toml matches"


def test_a_plan_says_how_inputs_are_read_and_what_the_job_resumes_from() -> None:
    told = plan(
        quote(), input_mode="FastFile", model_uri="s3://b/model.tar.gz", checkpoint_s3_uri="s3://b/kept", max_run=60
    )
    assert told["input data"] == "s3://b/data (FastFile, FullyReplicated)"
    assert (told["model"], told["checkpoints"]) == ("s3://b/model.tar.gz", "s3://b/kept")


def test_a_plan_names_groups_of_instances() -> None:
    groups = [InstanceGroup("feeders", "ml.c5.xlarge", 2), InstanceGroup("trainers", "ml.p3.2xlarge", 1)]
    told = plan(quote(), instance_type=None, instance_groups=groups)
    assert told["instances"] == "feeders of 2 x ml.c5.xlarge, trainers of 1 x ml.p3.2xlarge"


def test_a_machine_that_has_less_than_the_type_is_said() -> None:
    told = plan(quote(Notes=["ml.p3.2xlarge has 8 vCPUs; this machine has 2."]))
    assert told["share"] == "2 cores, 4.0 GiB"
    assert told["note"] == "ml.p3.2xlarge has 8 vCPUs; this machine has 2."


@pytest.mark.parametrize(
    ("free", "queued", "said"),
    [
        (0, 1, "1 job ahead"),
        (0, 3, "3 jobs ahead"),
        (0, 0, "first in the queue, but all slots are in use"),
        (1, 0, None),
    ],
)
def test_a_job_that_must_wait_is_announced(free: int, queued: int, said: str | None) -> None:
    assert plan(quote(FreeSlots=free, QueuedJobs=queued)).get("queue") == said


@pytest.mark.parametrize(("queued", "before"), [(0, ""), (2, "2 jobs ahead, ")])
def test_a_missing_engine_is_reported(queued: int, before: str) -> None:
    told = plan(quote(FreeSlots=0, QueuedJobs=queued, Obstacle="Nothing listens at 10.0.0.1:6379."))
    assert told["queue"] == f"{before}waiting for its engine: Nothing listens at 10.0.0.1:6379."


@pytest.mark.parametrize(("seconds", "text"), [(60, "1 min"), (3600, "1 h"), (5400, "1 h 30 min"), (30, "30 s")])
def test_the_time_limit_is_shown_in_hours_and_minutes(seconds: int, text: str) -> None:
    assert plan(quote(), max_run=seconds)["time limit"] == text


def test_isolation_is_said() -> None:
    instances = plan(quote(), enable_network_isolation=True)["instances"]
    assert instances == "1 x ml.m5.large, without network access"


def test_spot_is_said() -> None:
    assert plan(quote(), use_spot_instances=True)["instances"] == "1 x ml.m5.large, spot"


def test_a_plan_shows_what_is_packed_beside_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import model, nets")
    (tmp_path / "model.py").write_text("")
    (tmp_path / "requirements.txt").write_text("emoji")
    (tmp_path / "nets").mkdir()
    for name in ("__init__.py", "cnn.py"):
        (tmp_path / "nets" / name).write_text("")

    assert plan(quote(), include_local_modules=True)["with"] == "requirements.txt, model.py, nets/ (2 files)"
    assert "with" not in plan(quote())


def missing_bucket(_: dict[str, Any]) -> dict[str, Any]:
    raise CallFailed("404", "Not Found", status=404)


def test_what_the_yard_would_refuse_is_refused_before_the_plan() -> None:
    api = RecordingApi(HeadBucket=missing_bucket)
    estimator = PyTorch(
        "train.py",
        image_uri="image:1",
        instance_type="ml.m5.large",
        checkpoint_s3_uri="s3://lost/run-1",
        sagemaker_session=Session(api=api, default_bucket="bucket"),
    )
    with pytest.raises(Failure, match="the image maps to nothing"):
        require_accepted(api, estimator, [], quote(ImageObstacle="the image maps to nothing"))
    with pytest.raises(Failure, match='The bucket "b" of the input data does not exist'):
        require_accepted(api, estimator, [InputArgument("data", "s3://b/data")], quote())
    with pytest.raises(Failure, match='The bucket "lost" of --checkpoint-s3-uri does not exist'):
        require_accepted(api, estimator, [InputArgument("data", "a/local/folder")], quote())
