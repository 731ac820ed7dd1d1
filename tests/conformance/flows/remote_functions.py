"""Remote functions of the sagemaker SDK, version 2.257 or 3.

Its arguments are the module of remote functions, that of sessions, and the image of the functions' environment.
"""

import importlib
import os
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

REQUIREMENTS = "emoji==2.14.1\n"
BESIDE = "def shout(word):\n    return word.upper() + '!'\n"


class Unlucky(Exception):
    """An exception of the program's own."""


def add_up(values: list[int], *, power: int = 1) -> int:
    print("adding", len(values))
    return sum(value**power for value in values)


def fail(name: str) -> None:
    raise Unlucky(f"nothing called {name}")


def look_around() -> dict[str, Any]:
    """Use what came along: a module of the working directory, a package, a file of a command, a variable."""
    emoji, beside = (importlib.import_module(name) for name in ("emoji", "beside"))
    return {
        "shouted": beside.shout("hello"),
        "emoji": emoji.__version__,
        "written": Path("/tmp/before").read_text().strip(),
        "greeting": os.environ["GREETING"],
    }


def main(remote_functions: str, sessions: str, image: str) -> None:
    module, session = importlib.import_module(remote_functions), importlib.import_module(sessions).Session()
    common = {"image_uri": image, "instance_type": "ml.m5.large", "sagemaker_session": session}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for flow in (returns_a_result, raises_the_exception, takes_the_surroundings_along, runs_several):
            print(flow.__name__, flush=True)
            flow(module, session, common)


def returns_a_result(module: Any, session: Any, common: dict[str, Any]) -> None:
    name = f"sums-{uuid.uuid4().hex[:8]}"
    far = module.remote(
        add_up,
        **common,
        job_name_prefix=name,
        use_spot_instances=True,
        max_runtime_in_seconds=600,
        max_wait_time_in_seconds=900,
        max_retry_attempts=3,
        tags=[{"Key": "team", "Value": "blue"}],
    )
    assert far([1, 2, 3], power=2) == 14
    (future,) = module.client.list_futures(name, sagemaker_session=session)
    assert future.result() == 14
    described = session.sagemaker_client.describe_training_job(TrainingJobName=future._job.job_name)
    assert described["EnableManagedSpotTraining"] is True
    assert described["StoppingCondition"] == {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 900}
    assert described["RetryStrategy"] == {"MaximumRetryAttempts": 3}


def raises_the_exception(module: Any, session: Any, common: dict[str, Any]) -> None:
    error = raised_by(lambda: module.remote(fail, **common)("x"))
    assert isinstance(error, Unlucky)
    assert str(error) == "nothing called x"
    names, trace = [], error.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert names[-1] == "fail", names


def takes_the_surroundings_along(module: Any, session: Any, common: dict[str, Any]) -> None:
    Path("requirements.txt").write_text(REQUIREMENTS)
    Path("beside.py").write_text(BESIDE)
    far = module.remote(
        look_around,
        **common,
        dependencies="./requirements.txt",
        pre_execution_commands=["echo before > /tmp/before"],
        include_local_workdir=True,
        environment_variables={"GREETING": "hello"},
        volume_size=20,
    )
    found = far()
    assert found == {"shouted": "HELLO!", "emoji": "2.14.1", "written": "before", "greeting": "hello"}, found


def runs_several(module: Any, session: Any, common: dict[str, Any]) -> None:
    with module.RemoteExecutor(max_parallel_jobs=2, **common) as executor:
        futures = [executor.submit(add_up, [number] * 3) for number in range(3)]
        failing = executor.submit(fail, "y")
        assert [future.result() for future in futures] == [0, 3, 6]
        assert isinstance(raised_by(failing.result), Unlucky)
    name = futures[1]._job.job_name
    assert module.client.get_future(name, sagemaker_session=session).result() == 3


def raised_by(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
