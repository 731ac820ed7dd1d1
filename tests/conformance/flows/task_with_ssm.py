"""A task with simple-sagemaker's command line: a script on one instance, and its logs, state and model downloaded,
then again by `ssm data`."""

import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

# Not through its shebang line, which breaks if the path to Python contains a space.
SSM = (sys.executable, Path(sys.executable).with_name("ssm"))
TRAIN = """
import os
print("loss=0.25")
with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights.txt"), "w") as file:
    file.write("0.5")
with open("/state/step.txt", "w") as file:
    file.write("7")
"""


def main() -> None:
    project = f"project-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder:
        script, output = Path(folder) / "train.py", Path(folder) / "out"
        script.write_text(TRAIN)
        words = ("-p", project, "-t", "task", "-e", script, "-o", output, "--no_spot", "--it", "ml.m5.large")
        ssm("run", *words, "--md", "loss", "loss=([0-9.]+)", "--download_model", "--download_state")
        assert "loss=0.25" in (output / "logs" / "logs0").read_text()
        # ssm unpacks model.tar.gz.
        assert (output / "model" / "weights.txt").read_text() == "0.5"
        assert (output / "state" / "step.txt").read_text() == "7"
        fetched, task = Path(folder) / "fetched", ("-p", project, "-t", "task")
        ssm("data", *task, "-o", fetched, "--download_state", "--download_model")
        assert (fetched / "state" / "step.txt").read_text() == "7"
        assert (fetched / "model" / "weights.txt").read_text() == "0.5"


def ssm(*arguments: str | Path) -> None:
    run = subprocess.run([*SSM, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"ssm {arguments}: {run.stderr[-4000:]}{run.stdout[-4000:]}"


main()
