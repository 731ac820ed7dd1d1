"""Shared by flows with estimators: the estimators of either package, data on S3, and reports of what jobs read.

A flow is a program; it imports this module from its own folder.
"""

import hashlib
import importlib
import json
import tarfile
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A script that prints the SHA-256 of everything in its channels: of each file, and of two epochs of each FIFO.
TELL = """
import hashlib, json, os, pathlib

data = pathlib.Path("/opt/ml/input/data")
told = {}

def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()

for name, config in json.loads(os.environ["SM_INPUT_DATA_CONFIG"]).items():
    if config["TrainingInputMode"] == "Pipe":
        told[name] = [digest(data / f"{name}_{epoch}") for epoch in range(2)]
    else:
        files = [path for path in (data / name).rglob("*") if path.is_file()]
        told[name] = {str(path.relative_to(data / name)): digest(path) for path in files}
host = os.environ["SM_CURRENT_HOST"]
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], f"{host}.json").write_text(json.dumps(told))
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
    def bucket(self) -> str:
        return str(self.session.default_bucket())

    def put(self, files: Mapping[str, bytes]) -> str:
        """Upload files to S3, and return their location."""
        name = uuid.uuid4().hex
        for path, body in files.items():
            file = self.folder / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(body)
        return str(self.session.upload_data(str(self.folder / name), key_prefix=name))

    def estimator(self, script: str, **options: Any) -> Any:
        source = self.folder / uuid.uuid4().hex
        source.mkdir()
        (source / "train.py").write_text(script)
        common = {
            "role": self.role,
            "instance_count": 1,
            "instance_type": "ml.m5.large",
            "framework_version": "1.13.1",
            "py_version": "py39",
            "sagemaker_session": self.session,
        }
        given = {name: value for name, value in (common | options).items() if value is not None}
        return self.of("pytorch", "PyTorch")(entry_point="train.py", source_dir=str(source), **given)

    def told(self, job: Any) -> list[Any]:
        """Return the output of each instance of a completed job."""
        described = self.session.describe_training_job(job.latest_training_job.name)
        assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
        place = f"{described['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{described['TrainingJobName']}/output"
        files = self.archived(f"{place}/output.tar.gz")
        return [json.loads(files[name]) for name in sorted(files)]

    def archived(self, uri: str) -> dict[str, bytes]:
        """Return the files in an archive on S3."""
        with tempfile.TemporaryDirectory() as folder:
            self.session.download_data(folder, *split(uri))
            with tarfile.open(Path(folder) / Path(uri).name) as archive:
                files = {entry.name.removeprefix("./"): archive.extractfile(entry) for entry in archive}
                return {name: file.read() for name, file in files.items() if file is not None}

    def stored(self, uri: str) -> dict[str, bytes]:
        """Return the objects below a location."""
        with tempfile.TemporaryDirectory() as folder:
            self.session.download_data(folder, *split(f"{uri}/"))
            files = [path for path in Path(folder).rglob("*") if path.is_file()]
            return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def kit_of(package: str, folder: str) -> Kit:
    root = importlib.import_module(package)
    session = root.Session()
    return Kit(package, session, root.get_execution_role(session), Path(folder))


def split(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: digest(body) for name, body in files.items()}
