"""Processing with processors. Its argument is their package: sagemaker or trainyard.

The same code runs with either; with sagemaker, after `trainyard connect`.
"""

import importlib
import json
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPLIT = """
import argparse, json, os, pathlib, sys

parser = argparse.ArgumentParser()
parser.add_argument("--suffix", default="")
parser.add_argument("--fails", action="store_true")
options = parser.parse_args()
host = json.loads(pathlib.Path("/opt/ml/config/resourceconfig.json").read_text())["current_host"]
job = json.loads(pathlib.Path("/opt/ml/config/processingjobconfig.json").read_text())
names = sorted(path.name for path in pathlib.Path("/opt/ml/processing/input/data").iterdir())
print("seen", job["ProcessingJobName"], host, names, os.environ.get("GREETING"), flush=True)
for name in names:
    text = pathlib.Path("/opt/ml/processing/input/data", name).read_text()
    pathlib.Path("/opt/ml/processing/split", name + options.suffix).write_text(text.upper())
pathlib.Path("/opt/ml/output/message").write_text(f"{host} has split {len(names)}. ")
if options.fails:
    sys.exit(7)
"""
PACKAGED = """
import pathlib, sys
import beside

pathlib.Path("/opt/ml/processing/said/word.txt").write_text(" ".join([beside.WORD, *sys.argv[1:]]))
"""


@dataclass(frozen=True, slots=True)
class Kit:
    """The package under test, a session of it, and a folder for files of the flow."""

    package: str
    session: Any
    role: str
    folder: Path

    def of(self, module: str, name: str) -> Any:
        return getattr(importlib.import_module(f"{self.package}.{module}"), name)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "role": self.role,
            "instance_count": 1,
            "instance_type": "ml.m5.large",
            "sagemaker_session": self.session,
        }

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def input(self, source: str, path: str, **options: Any) -> Any:
        return self.of("processing", "ProcessingInput")(source=source, destination=path, **options)

    def output(self, path: str, name: str, **options: Any) -> Any:
        return self.of("processing", "ProcessingOutput")(source=path, output_name=name, **options)

    def stored(self, description: Mapping[str, Any]) -> dict[str, str]:
        """Return the stored files of the first output by name."""
        uri = description["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"]
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        keys = self.session.list_s3_files(bucket, prefix)
        return {key.removeprefix(f"{prefix}/"): self.session.read_s3_file(bucket, key) for key in keys}


def splits_with_scikit_learn(kit: Kit) -> None:
    """SKLearnProcessor: a local folder in, an output in the default bucket, half of it for each of two instances."""
    for number in range(4):
        kit.file(f"data/{number}.txt", f"line {number}")
    options = kit.options | {"instance_count": 2}
    processor = kit.of("sklearn.processing", "SKLearnProcessor")("1.2-1", env={"GREETING": "hi"}, **options)
    data = kit.input(
        str(kit.folder / "data"), "/opt/ml/processing/input/data", s3_data_distribution_type="ShardedByS3Key"
    )
    processor.run(
        kit.file("split.py", SPLIT),
        inputs=[data],
        outputs=[kit.output("/opt/ml/processing/split", "split")],
        arguments=["--suffix", ".big"],
    )
    told = processor.latest_job.describe()
    assert told["ProcessingJobStatus"] == "Completed", told
    assert told["ExitMessage"] == "algo-1 has split 2. algo-2 has split 2. ", told
    assert kit.stored(told) == {f"{number}.txt.big": f"LINE {number}" for number in range(4)}, kit.stored(told)


def reports_a_failure(kit: Kit) -> None:
    """ScriptProcessor: a script on S3 that fails keeps what it wrote, and the SDK raises its own error."""
    uri = kit.session.upload_data(kit.file("split.py", SPLIT), key_prefix="scripts")
    data = kit.session.upload_data(kit.file("one/x.txt", "x"), key_prefix=f"one/{uuid.uuid4().hex}")
    image = importlib.import_module(f"{kit.package}.image_uris").retrieve("sklearn", "us-east-1", "1.2-1")
    processor = kit.of("processing", "ScriptProcessor")(image_uri=image, command=["python3"], **kit.options)
    error, failure = kit.of("exceptions", "UnexpectedStatusException"), ""
    try:
        processor.run(
            uri,
            inputs=[kit.input(data, "/opt/ml/processing/input/data")],
            outputs=[kit.output("/opt/ml/processing/split", "split")],
            arguments=["--fails"],
            logs=False,
        )
    except error as raised:
        failure = str(raised)
    assert "exit code: 7" in failure, failure
    told = processor.latest_job.describe()
    assert told["FailureReason"].startswith("AlgorithmError"), told
    assert kit.stored(told) == {"x.txt": "X"}


def runs_a_command_in_isolation(kit: Kit) -> None:
    """Processor: a command without a script, without a network."""
    image = importlib.import_module(f"{kit.package}.image_uris").retrieve("sklearn", "us-east-1", "1.2-1")
    entrypoint = ["/bin/sh", "-c", 'echo "$0" > /opt/ml/processing/out/word', "isolated"]
    network = kit.of("network", "NetworkConfig")(enable_network_isolation=True)
    processor = kit.of("processing", "Processor")(
        image_uri=image, entrypoint=entrypoint, network_config=network, max_runtime_in_seconds=600, **kit.options
    )
    processor.run(outputs=[kit.output("/opt/ml/processing/out", "out", s3_upload_mode="Continuous")], logs=False)
    assert kit.stored(processor.latest_job.describe()) == {"word": "isolated\n"}


def runs_a_folder_with_pytorch(kit: Kit) -> None:
    """FrameworkProcessor: a script with a module beside it, started by the SDK's own shell script."""
    kit.file("source/beside.py", 'WORD = "beside"')
    kit.file("source/say.py", PACKAGED)
    estimator = kit.of("pytorch", "PyTorch")
    processor = kit.of("processing", "FrameworkProcessor")(estimator, "1.13.1", py_version="py39", **kit.options)
    outputs = [kit.output("/opt/ml/processing/said", "said")]
    processor.run("say.py", str(kit.folder / "source"), outputs=outputs, arguments=["twice"], wait=False)
    processor.latest_job.wait(logs=False)
    assert kit.stored(processor.latest_job.describe()) == {"word.txt": "beside twice"}


def stops(kit: Kit) -> None:
    """A job that is stopped while it runs ends as Stopped, and another program finds it by its name."""
    image = importlib.import_module(f"{kit.package}.image_uris").retrieve("sklearn", "us-east-1", "1.2-1")
    processor = kit.of("processing", "Processor")(image_uri=image, entrypoint=["sleep", "600"], **kit.options)
    processor.run(wait=False, logs=False)
    name = processor.latest_job.job_name
    found = kit.of("processing", "ProcessingJob").from_processing_name(kit.session, name)
    found.stop()
    found.wait(logs=False)
    assert found.describe()["ProcessingJobStatus"] == "Stopped", found.describe()


def main() -> None:
    package = sys.argv[1]
    session = importlib.import_module(f"{package}.session")
    with tempfile.TemporaryDirectory() as folder:
        used = session.Session()
        kit = Kit(package, used, session.get_execution_role(used), Path(folder))
        for part in (
            splits_with_scikit_learn,
            reports_a_failure,
            runs_a_command_in_isolation,
            runs_a_folder_with_pytorch,
            stops,
        ):
            part(kit)
            sys.stdout.write(json.dumps({"done": part.__name__}) + "\n")


if __name__ == "__main__":
    main()
