"""Sample instances for tests of engines: specs that a real agent can run, and programs with known behaviour."""

import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainyard.link.contract import PROTOCOL, ContainerSpec, InstanceSpec, LimitSpec, ObjectsSpec, ProgramSpec

ACCOUNT = "111111111111"
REGION = "eu-central-1"
BUCKET = "results"

QUICK = "print('done')"
FAILING = "raise SystemExit(3)"
ENDLESS = "import time; time.sleep(3600)"


@dataclass(frozen=True, slots=True)
class SampleEnvironment:
    """Where sample instances find their objects, and the uid they run as if the tests run as root.

    With an `image`, their Python runs in that container image.
    """

    objects_root: Path
    uid: int | None = None
    image: str = ""


def attempt_specs(
    environment: SampleEnvironment, code: str = QUICK, *, count: int = 1, job_id: str = "", attempt: int = 1
) -> list[InstanceSpec]:
    """Return the instances of one attempt of a new job that runs a line of Python."""
    job_id = job_id or uuid.uuid4().hex
    hosts = tuple(f"algo-{number}" for number in range(1, count + 1))
    spec = replace(_spec(environment, code, hosts), job_id=job_id, attempt=attempt)
    return [replace(spec, instance=host, uploads=host == hosts[0]) for host in hosts]


def _spec(environment: SampleEnvironment, code: str, hosts: Sequence[str]) -> InstanceSpec:
    return InstanceSpec(
        protocol=PROTOCOL,
        job_id="",
        job_name="sample",
        job_arn=f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/sample",
        account=ACCOUNT,
        region=REGION,
        attempt=1,
        instance=hosts[0],
        hosts=hosts,
        instance_type="local",
        instance_group="homogeneousCluster",
        program=ProgramSpec(command=(sys.executable, "-c", code), interpreter=sys.executable),
        hyperparameters={},
        environment={},
        channels=(),
        output_path=f"s3://{BUCKET}/jobs",
        metrics=(),
        limits=LimitSpec(),
        objects=ObjectsSpec(str(environment.objects_root)),
        grace_s=5,
        uid=environment.uid,
        container=_container(environment.image, code) if environment.image else None,
    )


def _container(image: str, code: str) -> ContainerSpec:
    return ContainerSpec(image, entrypoint=("python3", "-c", code), arguments=())
