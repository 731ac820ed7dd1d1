"""Records the output of the sagemaker-training toolkit for our configuration files.

`python -m tests.unit.instance.agent.recording PYTHON`, where PYTHON has sagemaker-training 5.1.4, writes the answers
beside this file. The tests compare with them and need no toolkit.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.unit.instance.agent.samples import RECORDED
from trainyard.instance.agent.program.configuration import config_files
from trainyard.link.contract import InstanceSpec

ANSWERS = Path(__file__).with_name("toolkit-5.1.4.json")

_PROGRAM = """
import json, os
from sagemaker_training import environment
before = set(os.environ)
made = environment.Environment()
more = {name: value for name, value in os.environ.items() if name not in before}
print("@" + json.dumps({"variables": made.to_env_vars(), "arguments": made.to_cmd_args(), "platform": more}))
"""


def record(python: str) -> None:
    answers = {name: _answer(python, spec) for name, spec in RECORDED.items()}
    ANSWERS.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")


def _answer(python: str, spec: InstanceSpec) -> object:
    with tempfile.TemporaryDirectory() as base:
        config = Path(base, "input", "config")
        config.mkdir(parents=True)
        for name, values in config_files(spec).items():
            (config / name).write_text(json.dumps(values))
        # The number of processors must not change the record: the toolkit counts those of the machine.
        environment = {"SAGEMAKER_BASE_DIR": base, "TRAINING_JOB_NAME": spec.job_name, "PATH": "/usr/bin:/bin"}
        program = f"import multiprocessing; multiprocessing.cpu_count = lambda: 2\n{_PROGRAM}"
        run = subprocess.run(
            [python, "-c", program],
            env={**environment, "AWS_DEFAULT_REGION": spec.region},
            capture_output=True,
            text=True,
            check=True,
        )
        (line,) = (line for line in run.stdout.splitlines() if line.startswith("@"))
        return json.loads(line[1:].replace(base, "/opt/ml"))


if __name__ == "__main__":
    record(sys.argv[1])
