"""The environment and the command line of a program."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.recording import ANSWERS
from tests.unit.instance.agent.samples import RECORDED, SPEC, changed
from trainyard.instance.agent.program.environment import (
    ProgramPaths,
    cpu_count,
    find_executable,
    program_arguments,
    program_environment,
    toolkit_variables,
)
from trainyard.instance.sandbox.contract import COMMANDS
from trainyard.link.contract import LimitSpec, ProcessingSpec, ProgramSpec

IN_NAMESPACES = ProgramPaths("/opt/ml", "/tmp", Path("/usr/bin/python3"))


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(ANSWERS.read_text())
    return recorded


@pytest.mark.parametrize("name", RECORDED)
def test_the_sm_variables_are_those_of_the_toolkit(name: str, answers: dict[str, Any]) -> None:
    made = toolkit_variables(RECORDED[name], "/opt/ml")
    wanted = dict(answers[name]["variables"])
    assert json.loads(made.pop("SM_TRAINING_ENV")) == json.loads(wanted.pop("SM_TRAINING_ENV"))
    assert made == wanted


@pytest.mark.parametrize("name", RECORDED)
def test_the_arguments_are_those_of_the_toolkit(name: str, answers: dict[str, Any]) -> None:
    assert program_arguments(RECORDED[name]) == answers[name]["arguments"]


@pytest.mark.parametrize("name", RECORDED)
def test_the_toolkits_further_variables_are_there_too(name: str, answers: dict[str, Any]) -> None:
    made = program_environment(RECORDED[name], IN_NAMESPACES)
    assert {key: made[key] for key in answers[name]["platform"]} == answers[name]["platform"]


def test_the_platform_names_the_job() -> None:
    made = program_environment(SPEC, IN_NAMESPACES)
    assert made["TRAINING_JOB_NAME"] == "mnist-7"
    assert made["TRAINING_JOB_ARN"] == SPEC.job_arn
    assert made["AWS_REGION"] == "us-west-2"
    assert made["SAGEMAKER_METRICS_DIRECTORY"] == "/opt/ml/output/metrics/sagemaker"


def test_a_processing_job_has_no_variables_of_training_but_those_of_its_request() -> None:
    spec = replace(SPEC, processing=ProcessingSpec(), environment={"SM_CHANNEL_DATA": "/opt/ml/processing/data"})
    made = program_environment(spec, IN_NAMESPACES)
    assert [name for name in made if name.startswith(("SM_", "TRAINING_"))] == ["SM_CHANNEL_DATA"]
    assert made["AWS_REGION"] == spec.region
    assert made["SAGEMAKER_METRICS_DIRECTORY"] == "/opt/ml/output/metrics/sagemaker"


def test_the_jobs_environment_wins_over_the_base_but_not_over_the_sm_variables() -> None:
    spec = changed(environment={"LANG": "de_DE.UTF-8", "SM_MODEL_DIR": "/elsewhere", "AWS_ENDPOINT_URL": "http://yard"})
    made = program_environment(spec, IN_NAMESPACES)
    assert made["LANG"] == "de_DE.UTF-8"
    assert made["SM_MODEL_DIR"] == "/opt/ml/model"
    assert made["AWS_ENDPOINT_URL"] == "http://yard"


def test_a_python_path_of_the_job_comes_behind_the_code() -> None:
    made = program_environment(changed(environment={"PYTHONPATH": "/opt/ml/input/data/lib"}), IN_NAMESPACES)
    assert made["PYTHONPATH"] == "/opt/ml/code:/opt/ml/input/data/lib"


def test_only_the_gpus_of_the_instance_are_visible() -> None:
    assert program_environment(SPEC, IN_NAMESPACES)["CUDA_VISIBLE_DEVICES"] == ""
    given = changed(limits=LimitSpec(gpus=(2, 5)), environment={"CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    made = program_environment(given, IN_NAMESPACES)
    assert made["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert made["SM_NUM_GPUS"] == "2"


def test_a_share_of_a_processor_counts_as_one() -> None:
    assert cpu_count(changed(limits=LimitSpec(cpus=0.5))) == 1
    assert cpu_count(changed(limits=LimitSpec(cpus=3.7))) == 3


def test_the_jobs_python_comes_before_those_of_the_system_on_the_path() -> None:
    surroundings = ProgramPaths("/opt/ml", "/tmp", Path("/environments/torch/bin/python"))
    assert program_environment(SPEC, surroundings)["PATH"].split(":")[:3] == [
        COMMANDS,
        "/tmp/.local/bin",
        "/environments/torch/bin",
    ]


def test_without_namespaces_every_path_is_the_hosts() -> None:
    made = program_environment(RECORDED["every kind of value"], ProgramPaths("/jobs/1/ml", "/jobs/1/tmp", Path("/p")))
    assert made["SM_CHANNEL_TRAIN"] == "/jobs/1/ml/input/data/train"
    assert made["SAGEMAKER_BASE_DIR"] == "/jobs/1/ml"
    assert "/opt/ml" not in json.dumps(made)


def test_a_hyperparameter_whose_name_is_no_valid_variable_is_still_an_argument() -> None:
    spec = changed(hyperparameters={"a=b": "1"})
    assert program_arguments(spec) == ["--a=b", "1"]
    assert not [name for name in toolkit_variables(spec, "/opt/ml") if "=" in name]


def test_a_module_keeps_its_folder() -> None:
    made = toolkit_variables(changed(program=ProgramSpec("scripts/train.py")), "/opt/ml")
    assert made["SM_MODULE_NAME"] == "scripts/train"
    assert made["SM_USER_ENTRY_POINT"] == "scripts/train.py"


def test_a_program_of_the_environment_is_found_if_it_can_be_executed(tmp_path: Path) -> None:
    tool = tmp_path / "a-tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o600)
    assert find_executable("a-tool", tmp_path) is None
    tool.chmod(0o700)
    assert find_executable("a-tool", tmp_path) == str(tool)


def test_the_path_of_the_system_comes_last(tmp_path: Path) -> None:
    found = find_executable("sh", tmp_path)
    assert found is not None
    assert found.endswith("/bin/sh")
    (tmp_path / "sh").touch(mode=0o700)
    assert find_executable("sh", tmp_path) == str(tmp_path / "sh")
    assert find_executable("no-such-tool", tmp_path) is None
