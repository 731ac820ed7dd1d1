import subprocess
import sys

PROGRAM = """
import sys
from trainyard.foundation.command_line import show_command
show_command(sys.argv[1].split())
print(open("/proc/self/cmdline").read().rstrip("\\0").replace("\\0", " "), end="")
"""


def listed_as(words: str, *, room: str = " " * 200) -> str:
    """How a process of its own is listed after it has shown these words."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, words, room], capture_output=True, text=True, check=True
    ).stdout


def test_a_process_is_listed_as_the_command_it_shows() -> None:
    assert listed_as("python train.py --epochs 3") == "python train.py --epochs 3"


def test_what_does_not_fit_is_cut_off() -> None:
    words = " ".join(["word"] * 1000)
    shown = listed_as(words, room="")
    assert words.startswith(shown)
    assert len(shown) > 1000
