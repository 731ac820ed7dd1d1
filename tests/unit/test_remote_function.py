"""What a remote function asks the yard for. tests/system/test_remote_functions.py runs some."""

import hashlib
import hmac
import io
import pickle
import sys
import tarfile
from typing import Any

import cloudpickle
import pytest

from tests.unit.recording import RecordingApi
from trainyard._sdk.remote.program import KEY_VARIABLE
from trainyard.exceptions import Corrupt, InvalidRequest, Unavailable
from trainyard.remote_function import RemoteExecutor, get_future, remote
from trainyard.session import Session

JOB: dict[str, Any] = {
    "TrainingJobName": "job",
    "TrainingJobStatus": "Completed",
    "Environment": {KEY_VARIABLE: "key"},
    "CheckpointConfig": {"S3Uri": "s3://b/results"},
}


def signed(content: bytes, key: str) -> dict[str, bytes]:
    return {"Body": hmac.digest(key.encode(), content, hashlib.sha256) + content}


def test_a_call_is_a_job_with_the_function_in_its_code() -> None:
    api = RecordingApi()
    session = Session(api=api, region="us-east-1")
    tags = [("team", "a")]
    with RemoteExecutor(
        sagemaker_session=session, max_runtime_in_seconds=60, tags=tags, job_name_prefix="f"
    ) as executor:
        future = executor.submit(remote(lambda number: number + 1), 2)
    request = api.only("CreateTrainingJob")
    assert future.job_name is not None
    assert future.job_name.startswith("f-")
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 60}
    assert request["ResourceConfig"]["InstanceType"] == "local"
    assert request["Tags"] == [{"Key": "team", "Value": "a"}]
    with tarfile.open(fileobj=io.BytesIO(api.only("PutObject")["Body"])) as archive:
        assert {"program.py", "call.pickle", "libraries/cloudpickle/cloudpickle.py"} <= set(archive.getnames())
        sent = archive.extractfile("call.pickle")
        assert sent is not None
        function, args, kwargs = pickle.loads(sent.read())
    assert function(*args, **kwargs) == 3


def test_the_result_of_an_earlier_call_is_read_again() -> None:
    content = pickle.dumps({"result": cloudpickle.dumps(42)})
    api = RecordingApi(DescribeTrainingJob=JOB, GetObject=signed(content, "key"))
    future = get_future("job", Session(api=api))
    assert (future.done(), future.running(), future.result()) == (True, False, 42)


def test_a_result_that_the_job_has_not_signed_is_not_unpickled() -> None:
    api = RecordingApi(DescribeTrainingJob=JOB, GetObject=signed(pickle.dumps({}), "another key"))
    with pytest.raises(Corrupt, match="was not written by the job job"):
        get_future("job", Session(api=api)).result()


def test_any_other_job_has_no_future() -> None:
    api = RecordingApi(DescribeTrainingJob={**JOB, "Environment": {}})
    with pytest.raises(InvalidRequest, match='"job" does not run a function'):
        get_future("job", Session(api=api))


@pytest.mark.parametrize("option", ["spark_config", "job_conda_env", "use_torchrun", "pre_execution_commands"])
def test_an_option_without_effect_is_refused_with_what_to_do_instead(option: str) -> None:
    options: dict[str, Any] = {option: "x"}
    with pytest.raises(InvalidRequest, match=rf"{option} has no effect in Trainyard's RemoteExecutor; \w+"):
        RemoteExecutor(**options)


def test_an_option_that_does_not_exist_is_a_type_error() -> None:
    with pytest.raises(TypeError, match='unexpected keyword argument "instance_typ"'):
        remote(instance_typ="local")


def test_arguments_that_cannot_be_pickled_are_refused_before_anything_is_sent() -> None:
    api = RecordingApi()
    executor = RemoteExecutor(sagemaker_session=Session(api=api))
    with pytest.raises(InvalidRequest, match="cannot be pickled, so no job can run it"):
        executor.submit(print, sys._getframe())
    assert api.asked == []


def test_without_cloudpickle_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(Unavailable, match=r"pip install 'trainyard\[remote\]'"):
        RemoteExecutor().submit(print)
