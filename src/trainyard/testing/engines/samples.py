"""Instances for tests of engines: specs that a real agent can run, and programs that behave in known ways."""

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
class Surroundings:
    """Where the instances of a test find their objects, and as whom they run where the tests run as root.

    With an `image`, they run their Python in it.
    """

    objects_root: Path
    uid: int | None = None
    image: str = ""


def attempt_specs(
    surroundings: Surroundings, code: str = QUICK, *, count: int = 1, job_id: str = "", attempt: int = 1
) -> list[InstanceSpec]:
    """The instances of one attempt at a new job that runs a line of Python."""
    job_id = job_id or uuid.uuid4().hex
    hosts = tuple(f"algo-{number}" for number in range(1, count + 1))
    spec = replace(_spec(surroundings, code, hosts), job_id=job_id, attempt=attempt)
    return [replace(spec, instance=host, uploads=host == hosts[0]) for host in hosts]


def _spec(surroundings: Surroundings, code: str, hosts: Sequence[str]) -> InstanceSpec:
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
        objects=ObjectsSpec(str(surroundings.objects_root)),
        grace_s=5,
        uid=surroundings.uid,
        container=_container(surroundings.image, code) if surroundings.image else None,
    )


def _container(image: str, code: str) -> ContainerSpec:
    return ContainerSpec(image, entrypoint=("python3", "-c", code), arguments=())
