"""simple-sagemaker processes data: a script with local data and state, a command on its output, and neither again."""

import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

# Not through its shebang line, which breaks if the path to Python contains a space.
SSM = (sys.executable, Path(sys.executable).with_name("ssm"))
CLEAN = """
import os, pathlib, sys
data = pathlib.Path(os.environ["SM_CHANNEL_DATA"])
text = "".join(path.read_text() for path in sorted(data.iterdir()))
pathlib.Path(os.environ["SSM_OUTPUT"], "clean.txt").write_text(text.upper() + sys.argv[1])
pathlib.Path(os.environ["SSM_STATE"], "step.txt").write_text("7")
print("cleaned", flush=True)
"""
# simple-sagemaker names one folder in SM_CHANNEL_CLEANED and asks for another.
COUNT = """
import os, pathlib
[cleaned] = pathlib.Path("/opt/ml/processing").rglob("clean.txt")
pathlib.Path(os.environ["SSM_OUTPUT"], "count.txt").write_text(str(len(cleaned.read_text())))
"""


def main() -> None:
    project = f"project-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        (folder / "data" / "a.txt").write_text("abc")
        (folder / "clean.py").write_text(CLEAN)
        words = ("-p", project, "-t", "clean", "--code", folder / "clean.py", "-i", folder / "data")
        outputs = ("-o", folder / "out", "--download_output", "--download_state", "--arguments", "!")
        ssm("process", *words, *outputs)
        files = {path.name: path.read_text() for path in (folder / "out").rglob("*") if path.is_file()}
        assert files["clean.txt"] == "ABC!", files
        assert files["step.txt"] == "7", files
        assert "cleaned" in files["logs0"], files
        again = ssm("process", *words, *outputs)
        assert "already" in again or "completed" in again.lower(), again
        (folder / "count.py").write_text(COUNT)
        chained = ("--iit", "cleaned", "clean", "output", "-o", folder / "counted", "--download_output")
        ssm("process", "-p", project, "-t", "count", "--code", folder / "count.py", *chained)
        assert next((folder / "counted").rglob("count.txt")).read_text() == "4"


def ssm(*arguments: str | Path) -> str:
    run = subprocess.run([*SSM, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"ssm {arguments}: {run.stderr[-6000:]}{run.stdout[-4000:]}"
    return run.stdout + run.stderr


main()
