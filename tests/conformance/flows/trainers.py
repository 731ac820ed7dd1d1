"""Training with ModelTrainer, of version 3 of the sagemaker SDK or of 2.257. Its argument is 3 or 2."""

import importlib
import json
import os
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"
MODULES = {
    "3": ("sagemaker.train.model_trainer", "sagemaker.core.training.configs", "sagemaker.train.distributed"),
    "2": ("sagemaker.modules.train.model_trainer", "sagemaker.modules.configs", "sagemaker.modules.distributed"),
}
SESSIONS = {"3": "sagemaker.core.helper.session_helper", "2": "sagemaker.modules"}
# Writes what it was given, and fails if it is told to.
SCRIPT = """
import argparse, json, os, pathlib, sys
from parts.words import WORD

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--rate", type=float)
parser.add_argument("--name")
parser.add_argument("--sizes", type=json.loads)
parser.add_argument("--failing", type=json.loads, default=False)
options = parser.parse_args()
if options.failing:
    raise ValueError("the numbers do not add up")
channels = {name: sorted(os.listdir(os.environ["SM_CHANNEL_" + name.upper()])) for name in ("train", "test", "names")}
for step in range(options.steps):
    print(f"loss={1 / (step + 1)};")
checkpoints = pathlib.Path("/opt/ml/checkpoints")
if checkpoints.exists():
    (checkpoints / "last.txt").write_text("3")
told = {**vars(options), "channels": channels, "greeting": os.environ.get("GREETING"), "word": WORD}
pathlib.Path(os.environ["SM_MODEL_DIR"], "told.json").write_text(json.dumps(told))
"""
# The sum of the squares of all ranks.
RANKS = """
import json, os, pathlib

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.tensor([float(rank**2)])
dist.all_reduce(total)
told = {"size": dist.get_world_size(), "total": total.item(), "word": os.environ.get("WORD")}
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], f"{rank}.json").write_text(json.dumps(told))
dist.barrier()
dist.destroy_process_group()
"""
HYPERPARAMETERS = {"steps": 3, "rate": 0.1, "name": "abc", "sizes": [1, 2]}
YAML = "steps: 3\nrate: 0.1\nname: abc\nsizes: [1, 2]\n"


@dataclass(frozen=True, slots=True)
class Kit:
    """The modules of one version, a session, and a folder with the source and the data."""

    version: str
    session: Any
    folder: Path

    def config(self, name: str, **members: Any) -> Any:
        return getattr(importlib.import_module(MODULES[self.version][1]), name)(**members)

    def distributed(self, name: str, **members: Any) -> Any:
        return getattr(importlib.import_module(MODULES[self.version][2]), name)(**members)

    def trainer(self, name: str, source: Mapping[str, Any], **options: Any) -> Any:
        module = importlib.import_module(MODULES[self.version][0])
        common = {
            "training_image": IMAGE,
            "base_job_name": f"{name}-{uuid.uuid4().hex[:6]}",
            "sagemaker_session": self.session,
            "compute": self.config("Compute", instance_type="ml.m5.large", instance_count=1),
        }
        return module.ModelTrainer(source_code=self.config("SourceCode", **source), **(common | options))

    def described(self, trainer: Any) -> dict[str, Any]:
        name = trainer._latest_training_job.training_job_name
        described: dict[str, Any] = self.session.sagemaker_client.describe_training_job(TrainingJobName=name)
        return described

    def archived(self, trainer: Any, name: str) -> dict[str, bytes]:
        """Return the files in an archive of a completed job."""
        described = self.described(trainer)
        assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
        place = f"{described['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{described['TrainingJobName']}/output"
        bucket, _, key = f"{place}/{name}".removeprefix("s3://").partition("/")
        body = self.session.boto_session.client("s3").get_object(Bucket=bucket, Key=key)["Body"]
        with tarfile.open(fileobj=body, mode="r|gz") as archive:
            return {each.name.removeprefix("./"): archive.extractfile(each).read() for each in archive if each.isfile()}  # type: ignore[union-attr]


def main(version: str) -> None:
    session = importlib.import_module(SESSIONS[version]).Session()
    with tempfile.TemporaryDirectory() as folder:
        # The SDK's local mode would use the working directory.
        os.chdir(folder)
        kit = Kit(version, session, Path(folder))
        lay_out(kit.folder)
        for flow in (every_option, of_a_file, by_shell_and_command, as_spot, by_torchrun, by_mpi, failing, locally):
            print(flow.__name__, flush=True)
            flow(kit)


def lay_out(folder: Path) -> None:
    (folder / "source" / "parts").mkdir(parents=True)
    (folder / "source" / "train.py").write_text(SCRIPT)
    (folder / "source" / "ranks.py").write_text(RANKS)
    (folder / "source" / "parts" / "words.py").write_text("WORD = 'hello'\n")
    (folder / "source" / "train.sh").write_text('exec python train.py --steps 3 "$@"\n')
    for name in ("train", "test"):
        (folder / name).mkdir()
        (folder / name / f"{name}.csv").write_text("1,2\n")
    (folder / "names.txt").write_text("a\nb\n")


def inputs(kit: Kit) -> list[Any]:
    """A local folder, a location on S3, and a local file."""
    bucket, key = kit.session.default_bucket(), f"data-{uuid.uuid4().hex[:8]}"
    kit.session.boto_session.client("s3").upload_file(str(kit.folder / "test/test.csv"), bucket, f"{key}/test.csv")
    sources = {
        "train": str(kit.folder / "train"),
        "test": f"s3://{bucket}/{key}",
        "names": str(kit.folder / "names.txt"),
    }
    return [kit.config("InputData", channel_name=name, data_source=source) for name, source in sources.items()]


def every_option(kit: Kit) -> None:
    bucket = kit.session.default_bucket()
    trainer = kit.trainer(
        "every-option",
        {"source_dir": str(kit.folder / "source"), "entry_script": "train.py"},
        compute=kit.config(
            "Compute",
            instance_type="ml.m5.xlarge",
            instance_count=1,
            volume_size_in_gb=20,
            keep_alive_period_in_seconds=60,
        ),
        hyperparameters=HYPERPARAMETERS,
        environment={"GREETING": "hello"},
        tags=[kit.config("Tag", key="team", value="blue")],
        stopping_condition=kit.config("StoppingCondition", max_runtime_in_seconds=600),
        output_data_config=kit.config("OutputDataConfig", s3_output_path=f"s3://{bucket}/every-option"),
        networking=kit.config(
            "Networking", enable_network_isolation=True, subnets=["subnet-1"], security_group_ids=["sg-1"]
        ),
    )
    trainer.train(input_data_config=inputs(kit), wait=True, logs=True)
    require_told(kit, trainer, greeting="hello")
    described = kit.described(trainer)
    assert described["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 60
    assert described["StoppingCondition"]["MaxRuntimeInSeconds"] == 600
    assert described["EnableNetworkIsolation"] is True
    tags = kit.session.sagemaker_client.list_tags(ResourceArn=described["TrainingJobArn"])["Tags"]
    assert {"Key": "team", "Value": "blue"} in tags, tags
    job = trainer._latest_training_job
    job.refresh()
    assert job.model_artifacts.s3_model_artifacts.endswith("/output/model.tar.gz")


def of_a_file(kit: Kit) -> None:
    """Hyperparameters from a YAML file, and the code from an archive."""
    (kit.folder / "hyperparameters.yaml").write_text(YAML)
    with tarfile.open(kit.folder / "source.tar.gz", "w:gz") as archive:
        archive.add(kit.folder / "source", ".")
    trainer = kit.trainer(
        "of-a-file",
        {"source_dir": str(kit.folder / "source.tar.gz"), "entry_script": "train.py"},
        hyperparameters=str(kit.folder / "hyperparameters.yaml"),
    )
    trainer.train(input_data_config=inputs(kit), logs=False)
    require_told(kit, trainer)


def by_shell_and_command(kit: Kit) -> None:
    words = {name: value for name, value in HYPERPARAMETERS.items() if name != "steps"}
    by_shell = kit.trainer(
        "by-shell", {"source_dir": str(kit.folder / "source"), "entry_script": "train.sh"}, hyperparameters=words
    )
    by_shell.train(input_data_config=inputs(kit), logs=False)
    require_told(kit, by_shell)
    command = "python train.py --steps 3 --rate 0.1 --name abc --sizes '[1, 2]'"
    by_command = kit.trainer("by-command", {"source_dir": str(kit.folder / "source"), "command": command})
    by_command.train(input_data_config=inputs(kit), logs=False)
    require_told(kit, by_command)


def as_spot(kit: Kit) -> None:
    bucket, key = kit.session.default_bucket(), f"checkpoints-{uuid.uuid4().hex[:8]}"
    trainer = kit.trainer(
        "as-spot",
        {"source_dir": str(kit.folder / "source"), "entry_script": "train.py"},
        compute=kit.config("Compute", instance_type="ml.m5.large", instance_count=1, enable_managed_spot_training=True),
        stopping_condition=kit.config("StoppingCondition", max_runtime_in_seconds=600, max_wait_time_in_seconds=900),
        checkpoint_config=kit.config("CheckpointConfig", s3_uri=f"s3://{bucket}/{key}"),
        hyperparameters=HYPERPARAMETERS,
    )
    trainer.train(input_data_config=inputs(kit), logs=False)
    require_told(kit, trainer)
    saved = kit.session.boto_session.client("s3").get_object(Bucket=bucket, Key=f"{key}/last.txt")["Body"].read()
    assert saved == b"3"
    assert kit.described(trainer)["EnableManagedSpotTraining"] is True


def by_torchrun(kit: Kit) -> None:
    """Three jobs at once, which must not disturb each other: each driver names the same port."""
    source = {"source_dir": str(kit.folder / "source"), "entry_script": "ranks.py"}
    several = kit.config("Compute", instance_type="ml.m5.large", instance_count=2)
    two = kit.distributed("Torchrun", process_count_per_node=2)
    trainers = [
        (2, kit.trainer("one-host", source, distributed=two)),
        (4, kit.trainer("two-hosts", source, distributed=two, compute=several)),
        (2, kit.trainer("two-others", source, distributed=kit.distributed("Torchrun"), compute=several)),
    ]
    for _, trainer in trainers:
        trainer.train(wait=False)
    for size, trainer in trainers:
        trainer._latest_training_job.wait()
        require_sums(kit, trainer, size)


def by_mpi(kit: Kit) -> None:
    trainer = kit.trainer(
        "by-mpi",
        {"source_dir": str(kit.folder / "source"), "entry_script": "ranks.py"},
        compute=kit.config("Compute", instance_type="ml.m5.large", instance_count=2),
        distributed=kit.distributed("MPI", process_count_per_node=2, mpi_additional_options=["-x", "WORD=hello"]),
    )
    trainer.train(logs=False)
    require_sums(kit, trainer, 4, word="hello")


def failing(kit: Kit) -> None:
    trainer = kit.trainer(
        "failing",
        {"source_dir": str(kit.folder / "source"), "entry_script": "train.py"},
        hyperparameters={**HYPERPARAMETERS, "failing": True},
    )
    kind = reason = ""
    try:
        trainer.train(input_data_config=inputs(kit))
    except Exception as error:
        kind, reason = type(error).__name__, str(error)
    assert kind == "FailedStatusError"
    assert "ValueError: the numbers do not add up" in reason, reason


def locally(kit: Kit) -> None:
    """The SDK itself refuses its local mode without Docker; the yard is not asked."""
    module = importlib.import_module(MODULES[kit.version][0])
    source = {"source_dir": str(kit.folder / "source"), "entry_script": "train.py"}
    reason = ""
    try:
        kit.trainer("locally", source, training_mode=module.Mode.LOCAL_CONTAINER).train()
    except Exception as error:
        reason = str(error)
    assert "docker" in reason.lower(), reason


def require_told(kit: Kit, trainer: Any, *, greeting: str | None = None) -> None:
    told = json.loads(kit.archived(trainer, "model.tar.gz")["told.json"])
    channels = {"train": ["train.csv"], "test": ["test.csv"], "names": ["names.txt"]}
    expected = {**HYPERPARAMETERS, "failing": False, "channels": channels, "greeting": greeting, "word": "hello"}
    assert told == expected, told


def require_sums(kit: Kit, trainer: Any, size: int, *, word: str | None = None) -> None:
    told = kit.archived(trainer, "output.tar.gz")
    expected = {"size": size, "total": float(sum(rank**2 for rank in range(size))), "word": word}
    assert {name: json.loads(body) for name, body in told.items()} == {f"{rank}.json": expected for rank in range(size)}


if __name__ == "__main__":
    main(*sys.argv[1:])
