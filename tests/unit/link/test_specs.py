import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainyard.foundation.errors import Corrupt, InvalidRequest
from trainyard.link.contract import PROTOCOL, ChannelSpec, InstanceSpec, LimitSpec, MetricSpec, ObjectsSpec, ProgramSpec
from trainyard.link.specs import read_spec, write_spec

SPEC = InstanceSpec(
    protocol=PROTOCOL,
    job_id="j-1",
    job_name="mnist",
    job_arn="arn:aws:sagemaker:eu-central-1:111111111111:training-job/mnist",
    account="111111111111",
    region="eu-central-1",
    attempt=2,
    instance="algo-2",
    hosts=("algo-1", "algo-2"),
    instance_type="ml.m5.large",
    instance_group="homogeneousCluster",
    program=ProgramSpec(entry_point="train.py", submit_directory="s3://code/sourcedir.tar.gz"),
    hyperparameters={"epochs": "3", "größe": '"7"'},
    environment={"A": "line\nbreak"},
    channels=(ChannelSpec("train", "File", "data", "mnist/", ("mnist/a", "mnist/b"), content_type="text/csv"),),
    output_path="s3://results/jobs",
    metrics=(MetricSpec("loss", "loss=([0-9.]+)"),),
    limits=LimitSpec(cpus=1.5, memory_bytes=2**33, gpus=(0, 3)),
    objects=ObjectsSpec("/objects"),
    uid=20001,
    hidden=("/home",),
)


def written(folder: Path, **changes: Any) -> Path:
    write_spec(folder, SPEC)
    values = json.loads((folder / "spec.json").read_bytes())
    values.update(changes)
    (folder / "spec.json").write_text(json.dumps(values))
    return folder


def test_a_spec_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_spec(tmp_path, SPEC)

    assert read_spec(tmp_path) == SPEC


def test_a_spec_is_for_the_owner_alone(tmp_path: Path) -> None:
    write_spec(tmp_path, SPEC)

    assert (tmp_path / "spec.json").stat().st_mode & 0o777 == 0o600


def test_whole_numbers_of_cores_come_back_as_they_were(tmp_path: Path) -> None:
    spec = replace(SPEC, limits=LimitSpec(cpus=2))
    write_spec(tmp_path, spec)

    assert read_spec(tmp_path) == spec


def test_members_with_a_default_may_be_absent(tmp_path: Path) -> None:
    written(tmp_path)
    values = json.loads((tmp_path / "spec.json").read_bytes())
    del values["grace_s"], values["program"]["interpreter"]
    (tmp_path / "spec.json").write_text(json.dumps(values))

    assert read_spec(tmp_path) == SPEC


@pytest.mark.parametrize("protocol", [0, PROTOCOL + 1])
def test_another_protocol_is_refused_and_named(tmp_path: Path, protocol: int) -> None:
    folder = written(tmp_path, protocol=protocol, something_new=True)

    with pytest.raises(InvalidRequest, match=f"protocol {protocol}"):
        read_spec(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attempt": "2"}, "attempt"),
        ({"attempt": True}, "attempt"),
        ({"hosts": "algo-1"}, "hosts"),
        ({"hosts": [1]}, r"hosts\[0\]"),
        ({"hyperparameters": {"epochs": 3}}, "hyperparameters.epochs"),
        ({"program": None}, "program"),
        ({"limits": {"gpus": [0.5]}}, r"limits.gpus\[0\]"),
        ({"channels": [{"name": "train"}]}, r"channels\[0\] lacks bucket"),
        ({"surprise": 1}, "knows no surprise"),
        ({"protocol": "1"}, "protocol"),
    ],
)
def test_a_spec_with_a_wrong_member_is_refused_and_the_member_named(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    folder = written(tmp_path, **changes)

    with pytest.raises(Corrupt, match=said):
        read_spec(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '"spec"', "\x00\x00"])
def test_a_file_that_is_no_spec_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "spec.json").write_text(text)

    with pytest.raises(Corrupt):
        read_spec(tmp_path)
