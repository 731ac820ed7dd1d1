import os
import subprocess
import sys

from trainyard.instance.sandbox import processes

CHILD = "import sys; print(1, flush=True); sys.stdin.read()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_descendants_are_children_and_their_children() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        found = processes.descendants(os.getpid())
        assert parent.pid in found
        assert len(processes.descendants(parent.pid)) == 1
        assert set(processes.descendants(parent.pid)) < set(found)
        parent.communicate()


def test_proportional_memory_is_some_and_at_most_the_resident() -> None:
    assert 0 < processes.proportional_memory(os.getpid()) <= processes.resident_memory(os.getpid()) * 1.1


def test_a_process_that_is_gone_has_no_children_and_no_memory() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert processes.descendants(gone.pid) == []
    assert processes.proportional_memory(gone.pid) == processes.resident_memory(gone.pid) == 0
