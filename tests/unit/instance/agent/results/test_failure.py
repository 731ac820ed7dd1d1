"""How failures are explained to the user."""

import errno
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.instance.agent.results.test_tracebacks import written_by
from trainyard.foundation.errors import Unavailable
from trainyard.instance.agent.results.failure import (
    ADVICE,
    CannotRun,
    FailureKind,
    InstanceFailure,
    ProgramEnd,
    exit_status,
    failure_before_program,
    failure_of_program,
    time_limit_card,
    to_cannot_run,
)
from trainyard.instance.agent.results.tracebacks import find_exception
from trainyard.instance.agent.watch.log_tail import LogTail
from trainyard.instance.sandbox.contract import ProgramExit

FAILED = ProgramExit(1, None)


def failure(
    text: str = "", *, ended: ProgramExit = FAILED, written: str | None = None, code: str = "/opt/ml/code"
) -> InstanceFailure:
    tail = LogTail()
    tail.add(text.encode())
    exception = find_exception(text, code)
    return failure_of_program(ProgramEnd("algo-1", "python train.py --epochs 3", ended, written, tail, exception))


def test_who_knows_better_advice_than_that_of_the_kind_gives_it() -> None:
    usual = CannotRun("No code.", FailureKind.USER_ERROR)
    better = CannotRun("No package.", FailureKind.USER_ERROR, "Correct requirements.txt.")
    cards = [failure_before_program(each, instance="algo-1", tail=LogTail()).card for each in (usual, better)]
    assert [card["advice"] for card in cards] == [ADVICE[FailureKind.USER_ERROR], "Correct requirements.txt."]


def test_an_exception_is_reported_with_its_line_and_the_end_of_the_log(tmp_path: Path) -> None:
    text = written_by("print('epoch 1')\nraise ValueError('no such optimizer')", tmp_path)
    told = failure(text, code=str(tmp_path))
    script = tmp_path / "train.py"
    assert told.reason == (
        "AlgorithmError: ExecuteUserScriptError:\nExitCode 1\n"
        f'ErrorMessage "ValueError: no such optimizer ({script}, line 2)"\n'
        'Command "python train.py --epochs 3", exit code: 1'
    )
    assert told.card["kind"] == "user error"
    assert told.card["exit_code"] == 1
    assert told.card["signal"] is None
    assert told.card["exception"] == {
        "type": "ValueError",
        "message": "no such optimizer",
        "file": str(script),
        "line": 2,
        "function": "<module>",
        "source": "raise ValueError('no such optimizer')",
    }
    assert told.card["last_lines"][0] == "epoch 1"
    assert told.card["last_lines"][-1] == "ValueError: no such optimizer"
    assert told.card["advice"] == ADVICE[FailureKind.USER_ERROR]


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("raise MemoryError", "out of memory"),
        ("class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError('CUDA')", "out of memory"),
        ("raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB')", "out of memory"),
        ("import errno\nraise OSError(errno.ENOSPC, 'No space left on device', '/tmp/x')", "disk full"),
        ("raise RuntimeError('write failed: No space left on device')", "disk full"),
        ('raise RuntimeError("can\'t start new thread")', "too many processes"),
        ("def fork(): raise BlockingIOError(11, 'Resource temporarily unavailable')\nfork()", "too many processes"),
        ("def receive(): raise BlockingIOError(11, 'Resource temporarily unavailable')\nreceive()", "user error"),
        ("open('/opt/ml/input/data/train/missing.csv')", "bad input data"),
        ("open('/somewhere/else.csv')", "user error"),
        ("raise ValueError('/opt/ml/input/data is fine')", "user error"),
    ],
)
def test_the_kind_follows_from_the_exception(program: str, kind: str, tmp_path: Path) -> None:
    told = failure(written_by(program, tmp_path), code=str(tmp_path))
    assert told.card["kind"] == kind


def test_an_exit_code_without_an_exception_is_reported_with_the_last_line() -> None:
    told = failure("usage: train.py\ntrain.py: error: unrecognized arguments: -x\n", ended=ProgramExit(2, None))
    assert 'ExitCode 2\nErrorMessage "train.py: error: unrecognized arguments: -x"' in told.reason
    assert told.reason.endswith("exit code: 2")


def test_an_end_without_output_is_reported_by_its_code() -> None:
    assert failure(ended=ProgramExit(7, None)).card["summary"] == "The program ended with exit code 7."


def test_a_signal_is_named_and_counts_as_shells_count_it() -> None:
    told = failure("working\n", ended=ProgramExit(None, signal.SIGSEGV))
    assert told.card["signal"] == "SIGSEGV"
    assert told.card["summary"] == "The program was killed by SIGSEGV."
    assert told.reason.endswith("exit code: 139")


def test_a_real_time_signal_has_a_number_for_a_name() -> None:
    assert failure(ended=ProgramExit(None, 40)).card["signal"] == "signal 40"


def test_a_program_that_exceeds_its_memory_is_reported_so_whatever_it_wrote() -> None:
    told = failure("working\n", ended=ProgramExit(None, signal.SIGKILL, is_oom=True))
    assert told.reason.startswith("ClientError: The program used more memory than its instance has")
    assert told.reason.endswith("exit code: 137")
    assert told.card["kind"] == "out of memory"


def test_what_the_program_wrote_as_its_reason_is_the_reason() -> None:
    told = failure("Traceback", ended=ProgramExit(0, None), written="the data is stale")
    assert told.reason == "AlgorithmError: the data is stale, exit code: 0"
    assert told.card["summary"] == "the data is stale"


DRIVER_TRACEBACK = """Traceback (most recent call last):
  File "/opt/ml/input/data/sm_drivers/common/utils.py", line 193, in execute_commands
    raise subprocess.CalledProcessError(exitcode, commands)
subprocess.CalledProcessError: Command '['python3', 'train.py']' returned non-zero exit status 1.
"""


def test_the_exception_of_a_script_explains_more_than_what_the_driver_of_a_trainer_wrote() -> None:
    log = (
        "Traceback (most recent call last):\n"
        'File "/opt/ml/input/data/code/train.py", line 7, in <module>\n'
        "add()\n"
        'File "/opt/ml/input/data/code/train.py", line 5, in add\n'
        "raise\n"
        "ValueError: the numbers do not add up\n"
        f"Command failed with exit code 1. Traceback: {DRIVER_TRACEBACK}"
    )
    explanation = "ValueError: the numbers do not add up (/opt/ml/input/data/code/train.py, line 5)"
    assert failure(log, written=DRIVER_TRACEBACK).card["summary"] == explanation
    assert failure("no data\n", written=DRIVER_TRACEBACK).card["summary"] == DRIVER_TRACEBACK


def test_the_last_line_of_a_command_explains_more_than_what_the_driver_of_a_trainer_wrote() -> None:
    written = "Training Execution failed. For more details, see CloudWatch logs at 'aws/sagemaker/TrainingJobs'."
    last = "ERROR: No matching distribution found for nosuch==9"
    assert failure(f"{last}\nAn error occurred with exit code 1\n", written=written).card["summary"] == last
    assert failure("An error occurred with exit code 1\n", written=written).card["summary"] == written


def test_the_reason_a_program_wrote_decides_the_kind_too() -> None:
    assert failure(written="OSError: [Errno 28] No space left on device").card["kind"] == "disk full"


def test_a_program_that_never_ran_is_reported_without_a_command() -> None:
    tail = LogTail()
    tail.add(b"ERROR: No matching distribution found for nosuch==1\n")
    told = failure_before_program(CannotRun("No code.", FailureKind.BAD_INPUT), instance="algo-2", tail=tail)
    assert told.reason == "ClientError: No code."
    assert told.card == {
        "kind": "bad input data",
        "instance": "algo-2",
        "summary": "No code.",
        "advice": ADVICE[FailureKind.BAD_INPUT],
        "last_lines": ["ERROR: No matching distribution found for nosuch==1"],
    }


def test_a_full_disk_is_recognized_behind_other_errors() -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as cause:
            raise Unavailable("There is no space left for the object store.") from cause
    except Unavailable as error:
        told = to_cannot_run(error)
    assert told.kind is FailureKind.DISK_FULL


def test_an_unexpected_error_is_internal() -> None:
    told = to_cannot_run(ZeroDivisionError("division by zero"))
    assert (told.kind, told.message) == (FailureKind.INTERNAL, "ZeroDivisionError: division by zero")
    failed = failure_before_program(told, instance="algo-1", tail=LogTail())
    assert failed.reason.startswith("InternalServerError: ")


def test_a_program_out_of_time_gets_a_card() -> None:
    card = time_limit_card("algo-1", seconds=3600, tail=LogTail())
    assert card["kind"] == "time limit"
    assert "3600 seconds" in card["summary"]


def test_every_kind_has_advice() -> None:
    assert set(ADVICE) == set(FailureKind)


def test_the_status_is_the_code_or_128_and_the_signal() -> None:
    assert exit_status(ProgramExit(0, None)) == 0
    assert exit_status(ProgramExit(3, None)) == 3
    assert exit_status(ProgramExit(None, 15)) == 143


def test_a_rank_is_named_with_its_failure() -> None:
    tail = LogTail()
    tail.add(b"epoch 1\n")
    end = ProgramEnd("algo-3", "python train.py", ProgramExit(None, signal.SIGKILL), None, tail, None, rank=2, at_us=7)
    told = failure_of_program(end)
    assert 'ErrorMessage "rank 2 on algo-3: The program was killed by SIGKILL."' in told.reason
    assert (told.card["rank"], told.card["at_us"], told.card["is_consequence"]) == (2, 7, False)
    server = failure_of_program(replace(end, rank=None, is_server=True))
    assert server.card["summary"] == "the parameter server on algo-3: The program was killed by SIGKILL."


@pytest.mark.parametrize(
    ("last", "is_consequence"),
    [
        ("RuntimeError: [gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.64.0.3]:4711", True),
        ("torch.distributed.DistNetworkError: failed to recv, got 0 bytes", True),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", True),
        ("ValueError: no such optimizer", False),
        ("", False),
    ],
)
def test_a_rank_that_only_lost_a_connection_failed_because_of_another(last: str, is_consequence: bool) -> None:
    assert failure(f"step 7\n{last}\n").card["is_consequence"] is is_consequence


@pytest.mark.parametrize("is_isolated", [False, True])
def test_a_package_that_an_isolated_job_cannot_reach_is_explained_by_the_isolation(is_isolated: bool) -> None:
    tail = LogTail()
    tail.add(b"ERROR: No matching distribution found for emoji\n")
    end = ProgramEnd("algo-1", "python train.py", FAILED, None, tail, None, is_isolated=is_isolated)
    assert ("EnableNetworkIsolation" in failure_of_program(end).card["advice"]) is is_isolated


@pytest.mark.parametrize(("module", "package"), [("torch.nn", "torch"), ("sklearn", "scikit-learn")])
def test_a_missing_module_is_named_with_the_package_that_has_it(module: str, package: str) -> None:
    place = '  File "/opt/ml/code/train.py", line 1, in <module>'
    end = f"ModuleNotFoundError: No module named '{module}'"
    told = failure(f"Traceback (most recent call last):\n{place}\n    import {module}\n{end}\n")
    assert f"pip install {package}`" in told.card["advice"]
    assert f'"{package}" in a requirements.txt' in told.card["advice"]
