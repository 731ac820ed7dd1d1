import subprocess
import sys

from trainyard.foundation.interpreter import PACKAGE, boot_code

# Each takes milliseconds of every job's start.
HEAVY = {
    "collections",
    "contextlib",
    "dataclasses",
    "enum",
    "functools",
    "json",
    "pathlib",
    "re",
    "subprocess",
    "typing",
}


def test_the_supervisor_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys; package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:]\n"
        "import trainyard.instance.sandbox.supervisor; print(*sys.modules)"
    )
    command = [sys.executable, "-I", "-S", "-c", code, PACKAGE]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert "trainyard.instance.sandbox.init" in loaded
    assert loaded & HEAVY == set()


def test_a_supervisor_ends_if_its_launcher_is_gone_before_it_sent_the_spec() -> None:
    command = [sys.executable, "-I", "-S", "-c", boot_code("trainyard.instance.sandbox.supervisor"), PACKAGE]
    assert subprocess.run(command, input=b"\1\0\0", check=False, timeout=30).returncode == 1
