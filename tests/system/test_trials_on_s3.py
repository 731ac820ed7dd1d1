"""Trials on S3: read in place, followed while they grow, and reported when out of reach."""

from pathlib import Path

import numpy as np
import pytest

from tests.unit.formats.tensors.runs import LOSS, WEIGHT, step_of, values_at, write_run
from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.session import Session
from trainyard.testing.yard import RunningYard
from trainyard.trial import MissingCollectionFiles, create_trial


@pytest.fixture(autouse=True)
def exported(yard: RunningYard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables of `trainyard env`."""
    for name, value in yard.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)


@pytest.mark.flow
def test_a_trial_is_read_and_followed_where_it_lies(tmp_path: Path) -> None:
    session = Session()
    bucket = session.default_bucket()
    writer = write_run(tmp_path / "tensors", 60, ends=False)
    place = session.upload_data(str(tmp_path / "tensors"), bucket, "job-1/debug-output")
    trial = create_trial(place)
    assert trial.name == "debug-output"
    assert trial.steps() == [0, 10, 20, 30, 40, 50]
    assert np.array_equal(trial.tensor(WEIGHT).value(20), values_at(20, 0))
    assert not trial.loaded_all_steps
    writer.append(step_of(60, saved=(False, True, False)))
    writer.close()
    session.upload_data(str(tmp_path / "tensors"), bucket, "job-1/debug-output")
    trial.refresh()
    assert trial.series(LOSS).values[-1] == 1 / 61
    assert trial.loaded_all_steps


def test_a_prefix_without_a_trial_and_a_missing_bucket_are_distinguished() -> None:
    bucket = Session().default_bucket()
    with pytest.raises(MissingCollectionFiles, match=f'There is no trial at "s3://{bucket}/nothing"'):
        create_trial(f"s3://{bucket}/nothing/")
    with pytest.raises(NotFound, match="s3://no-such-bucket"):
        create_trial("s3://no-such-bucket/x")


def test_a_yard_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"Nothing listens at http://127\.0\.0\.1:1"):
        create_trial("s3://bucket/job/debug-output")
