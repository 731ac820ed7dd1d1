"""Runs that could choose the same names for what they store: none gets, or changes, what belongs to another."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from trainyard._sdk import job_names
from trainyard._sdk.connection import find_yard
from trainyard._sdk.training.cloudwatch import read_log
from trainyard._sdk.training.job import TrainingJobHandle
from trainyard.foundation.clock import utc_now
from trainyard.pytorch import PyTorch
from trainyard.session import Session
from trainyard.testing.yard import RunningYard, running_yard
from trainyard.wire.client import CallFailed

WAIT = "import time\nwhile True: time.sleep(0.1)\n"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("runs") / "yard", environment={"TRAINYARD_SERVER_SLOTS": "1"}) as yard:
        yield yard


@pytest.fixture
def session(yard: RunningYard) -> Iterator[Session]:
    with closing(find_yard(yard.home).client()) as client:
        yield Session(api=client, region=yard.credentials.region)


def estimator(session: Session, folder: Path, script: str, name: str = "train.py") -> PyTorch:
    (folder / name).write_text(script)
    return PyTorch(
        str(folder / name),
        image_uri="pytorch-training:latest",
        instance_type="ml.m5.large",
        base_job_name=Path(name).stem,
        sagemaker_session=session,
    )


def test_a_refused_job_does_not_change_the_code_of_the_one_that_has_its_name(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocker = estimator(session, tmp_path, WAIT, "wait.py")
    blocker.fit(wait=False)
    estimator(session, tmp_path, "print('the code of the first')\n").fit(wait=False, job_name="queued")

    with pytest.raises(CallFailed) as refused:
        estimator(session, tmp_path, "print('the code of the second')\n").fit(wait=False, job_name="queued")
    assert refused.value.code == "ResourceInUse"
    assert blocker.latest_training_job is not None
    blocker.latest_training_job.stop()
    capsys.readouterr()
    TrainingJobHandle(session.api, "queued").logs()

    assert capsys.readouterr().out == "the code of the first\n"


def test_runs_that_begin_at_the_same_moment_all_get_a_name_and_their_own_code(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moment = utc_now()
    monkeypatch.setattr(job_names, "utc_now", lambda: moment)
    estimators = []
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        estimators.append(estimator(session, folder, f"print('run {number}')\n", "same.py"))
    threads = [threading.Thread(target=each.fit, kwargs={"wait": False}) for each in estimators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for number, each in enumerate(estimators):
        assert each.latest_training_job is not None, "it has made a job"
        capsys.readouterr()
        each.latest_training_job.logs()
        assert capsys.readouterr().out == f"run {number}\n"


BACKEND = """
import os, pathlib

def get_requires_for_build_wheel(config_settings=None):
    pathlib.Path(os.environ["UV_CACHE_DIR"], "poison").write_text("left by a build")
    print("left something in the cache")
    raise SystemExit("that is all")
"""


def test_the_build_of_a_job_leaves_nothing_in_the_cache_of_later_ones(
    yard: RunningYard, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        "[project]\nname = 'own'\nversion = '1'\n"
    )
    (tmp_path / "backend.py").write_text(BACKEND)
    (tmp_path / "train.py").write_text("print('trained')\n")
    packed = PyTorch(
        "train.py",
        source_dir=str(tmp_path),
        image_uri="pytorch-training:latest",
        instance_type="ml.m5.large",
        base_job_name="builds",
        sagemaker_session=session,
    )

    packed.fit(logs=False)

    job = packed.latest_training_job
    assert job is not None
    written = [line.text for line in read_log(session.api, job.name)]
    assert any("left something in" in line for line in written), written
    assert not list(yard.home.environments.rglob("poison"))
