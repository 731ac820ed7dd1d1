"""Programs that take all resources or refuse to end, on the yards of root and of an ordinary user.

Each is held to its share or ended, the failure card says what it was, nothing of it is left, and the yard answers all
the while. Those that take long are in tests/faults.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.system.containment import Case, besieged, contain
from tests.system.trainees import ENDED, Trainee
from tests.system.watching import Watch, card_of, processes_of
from tests.system.yards import KINDS, Place, place_for, trainee_of
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard

CASES = (
    Case(
        "memory-hog",
        "taken = []\nwhile True: taken.append(bytearray(b'x') * (8 << 20))",
        "Failed",
        ["out of memory"],
        "used more memory than its instance has",
    ),
    Case(
        "memory-hog-of-children",
        """
        import os, signal, sys
        for _ in range(4):
            if os.fork() == 0:
                taken = bytearray(b"x") * (160 << 20)
                signal.pause()
        sys.exit(os.wait()[1] != 0)
        """,
        "Failed",
        ["out of memory"],
    ),
    Case(
        "fork-bomb",
        """
        import os, time
        while True:
            if os.fork() == 0:
                time.sleep(600)
        """,
        "Failed",
        ["too many processes", "out of memory"],
    ),
    Case(
        "thread-bomb",
        """
        import threading, time
        threading.stack_size(64 << 10)
        while True:
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        """,
        "Failed",
        ["too many processes", "out of memory"],
    ),
    Case(
        "shared-memory-hog",
        "with open('/dev/shm/x', 'wb') as file:\n    while True: file.write(bytes(1 << 20))",
        "Failed",
        ["out of memory", "disk full"],
    ),
    Case(
        "daemon",
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in range(3):
                    os.close(number)
                time.sleep(600)
            os._exit(0)
        os.wait()
        """,
        "Completed",
    ),
    Case(
        "stopper",
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(600)",
        "Stopped",
        ["time limit"],
        limit_s=1,
    ),
    Case(
        "chatter",
        "while True: print('x' * 1000)",
        "Stopped",
        ["time limit"],
        limit_s=3,
    ),
    Case(
        "opener",
        "files = [open('/dev/null') for _ in range(10_000)]\nprint(len(files))",
        "Completed",
    ),
    Case(
        "destroyer",
        "import subprocess\nsubprocess.run('rm -rf /opt/ml/* /opt/ml/.* /tmp/* /', shell=True)",
        "Completed",
    ),
    Case(
        "mute",
        "import os, time\nos.closerange(0, 10)\ntime.sleep(0.5)\nopen('/opt/ml/model/w', 'w').write('w')",
        "Completed",
    ),
    Case(
        "changeling",
        """
        import os, sys
        count = int(os.environ.get("COUNT", 0))
        if count < 10:
            os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "COUNT": str(count + 1)})
        print("changed", count)
        """,
        "Completed",
    ),
)


@pytest.fixture(params=KINDS, scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_for(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def siege(place: Place) -> Iterator[tuple[RunningYard, Trainee]]:
    with besieged(place) as made:
        yield made


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_program_that_takes_all_it_can_is_contained(
    case: Case, siege: tuple[RunningYard, Trainee], record_property: Callable[[str, object], None]
) -> None:
    contain(case, *siege, record=record_property)


COUNTING = """
import itertools, time
for number in itertools.count():
    print("line", number, flush=True)
    time.sleep(0.05)
"""
HOARD = """
import time
with open("PLACE/hoard", "wb", buffering=0) as file:
    while True:
        try:
            file.write(bytes(1 << 18))
        except OSError:
            time.sleep(0.01)
"""
MANY = """
import itertools, os, time
for number in itertools.count():
    try:
        os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY))
    except OSError:
        time.sleep(0.01)
"""
DISK_BYTES, DISK_FILES = 256 << 20, 30_000


@pytest.fixture
def full_yard(place: Place) -> Iterator[RunningYard]:
    """Run a yard on a small disk of its own, so that a full disk affects nobody else."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    home = Path(tempfile.mkdtemp(prefix="trainyard-"))  # where no job of another yard sees that something is mounted
    options = f"size={DISK_BYTES},nr_inodes={DISK_FILES},mode=700,uid={place.uid},gid={place.uid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(home)], check=True)
    try:
        with replace(place, folder=home.parent, name=home.name).running(slots="2") as running:
            yield running
    finally:
        # It is in use until the last process of the yard has ended.
        eventually(lambda: subprocess.run(["umount", str(home)], capture_output=True, check=False).returncode == 0)
        home.rmdir()


@pytest.mark.parametrize(
    "script",
    [HOARD.replace("PLACE", "/tmp"), HOARD.replace("PLACE", "/opt/ml/checkpoints"), MANY],
    ids=["tmp", "checkpoints", "many-files"],
)
def test_a_program_that_fills_the_disk_is_ended_and_named_and_the_yard_continues(
    script: str, full_yard: RunningYard
) -> None:
    trainee = trainee_of(full_yard).prepare()
    trainee.start("neighbour", COUNTING)
    trainee.await_line("neighbour", "line 0")
    with Watch(trainee, "neighbour") as watch:
        told = trainee.run("hoarder", script)
    assert told["FailureReason"].startswith("ClientError: The program filled the disk of this machine"), told
    assert card_of(full_yard, "hoarder")["kind"] == "disk full"
    assert processes_of(full_yard, "hoarder") == []
    assert watch.errors == []
    assert trainee.run("after", "print('room again')")["TrainingJobStatus"] == "Completed"
    trainee.sagemaker.stop_training_job(TrainingJobName="neighbour")
    assert trainee.reach("neighbour", *ENDED)["TrainingJobStatus"] == "Stopped"
    *lines, _ = trainee.printed("neighbour")  # it may have been stopped in the middle of the last one
    assert lines == [f"line {number}" for number in range(len(lines))]


def test_a_program_that_runs_out_of_space_fails_with_that_reason(full_yard: RunningYard) -> None:
    trainee = trainee_of(full_yard).prepare()
    script = "with open('/opt/ml/model/w', 'wb') as file:\n    while True: file.write(bytes(64 << 20))"
    told = trainee.run("greedy", script)
    assert told["TrainingJobStatus"] == "Failed"
    assert card_of(full_yard, "greedy")["kind"] == "disk full"
    assert trainee.keys("out/") == []
