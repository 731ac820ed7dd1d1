"""The script of a job that runs a function, run without a job."""

import hashlib
import hmac
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from trainyard._sdk.remote import program

KEY = "key"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run the script for a function, and return the outcome that it leaves."""
    monkeypatch.setattr(program, "FOLDER", str(tmp_path / "results"))
    monkeypatch.setattr(program, "__file__", str(tmp_path / "code/program.py"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv(program.KEY_VARIABLE, KEY)
    monkeypatch.setenv(program.PYTHON_VARIABLE, "{}.{}".format(*sys.version_info[:2]))
    monkeypatch.delenv("SM_HOSTS", raising=False)

    def call(function: Callable[..., Any], *args: Any, status: int = 0) -> dict[str, Any]:
        shutil.rmtree(tmp_path / "code", ignore_errors=True)
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / program.CALL).write_bytes(cloudpickle.dumps((function, args, {})))
        assert program.main() == status
        body = (tmp_path / "results" / program.RESULT).read_bytes()
        assert hmac.compare_digest(body[:32], hmac.digest(KEY.encode(), body[32:], hashlib.sha256))
        outcome: dict[str, Any] = pickle.loads(body[32:])
        return outcome

    return call


def test_the_result_is_what_the_function_returns(run: Callable[..., dict[str, Any]]) -> None:
    assert pickle.loads(run(lambda a, b: {"sum": a + b}, 1, 2)["result"]) == {"sum": 3}


def test_an_exception_is_kept_with_its_traceback(run: Callable[..., dict[str, Any]]) -> None:
    def fail(number: int) -> None:
        raise ValueError(f"bad {number}")

    outcome = run(fail, 3, status=1)
    error = pickle.loads(outcome["error"])
    assert (type(error), str(error)) == (ValueError, "bad 3")
    assert 'raise ValueError(f"bad {number}")' in outcome["traceback"]


def test_an_exception_that_cannot_be_unpickled_is_told_by_another(run: Callable[..., dict[str, Any]]) -> None:
    class Odd(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} {two}")

    def fail() -> None:
        raise Odd(1, 2)

    assert str(pickle.loads(run(fail, status=1)["error"])) == "Odd: 1 2"


def test_a_result_that_cannot_be_pickled_is_an_error(run: Callable[..., dict[str, Any]]) -> None:
    error = pickle.loads(run(lambda: sys._getframe(), status=1)["error"])
    assert "returned a frame, which cannot be pickled" in str(error)


def test_another_version_of_python_is_refused_before_the_call(
    run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(program.PYTHON_VARIABLE, "3.1")
    error = pickle.loads(run(lambda: 1, status=1)["error"])
    assert "pickled by Python 3.1, and the job runs Python" in str(error)
