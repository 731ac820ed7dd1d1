import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[4] / "src/trainyard"

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


def test_the_keeper_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys; package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:]\n"
        "import trainyard.instance.sandbox.keeper; print(*sys.modules)"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(SOURCE)]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert "trainyard.instance.sandbox.init" in loaded
    assert loaded & HEAVY == set()


def test_a_keeper_whose_launcher_is_gone_before_its_orders_ends() -> None:
    code = (
        "import sys; package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:]\n"
        "from trainyard.instance.sandbox.keeper import main; main()"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(SOURCE)]
    assert subprocess.run(command, input=b"\1\0\0", check=False, timeout=30).returncode == 1
