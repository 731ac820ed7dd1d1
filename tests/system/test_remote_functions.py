"""Functions that run as jobs of a real yard."""

import sys

import pytest

from trainyard.remote_function import RemoteExecutor, get_future, remote
from trainyard.session import Session
from trainyard.testing.yard import RunningYard


@pytest.fixture
def session(yard: RunningYard, monkeypatch: pytest.MonkeyPatch) -> Session:
    for name, value in yard.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    return Session()


@pytest.mark.flow
def test_a_function_runs_as_a_job_and_returns_or_raises(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    @remote(sagemaker_session=session, job_name_prefix="divide")
    def divide(a: int, b: int = 1) -> float:
        sys.stdout.write(f"dividing {a} by {b}\n")
        return a / b

    assert divide(6, b=4) == 1.5
    assert "dividing 6 by 4" in capsys.readouterr().out
    with pytest.raises(ZeroDivisionError, match="division by zero") as raised:
        divide(1, 0)
    assert "in divide\nZeroDivisionError" in str(raised.value.__cause__)


def test_an_executor_runs_several_jobs_and_their_futures_can_be_found_again(session: Session) -> None:
    with RemoteExecutor(max_parallel_jobs=2, sagemaker_session=session) as executor:
        futures = [executor.submit(lambda number: number * number, each) for each in range(3)]
        assert [future.result() for future in futures] == [0, 1, 4]
    assert futures[2].job_name is not None
    assert get_future(futures[2].job_name, session).result() == 4
