"""What every instance of a yard's jobs is told of the yard, of its credentials, and of its limits."""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from trainyard.foundation.jobs.attempts import Share
from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.link.contract import ENVIRONMENTS_BYTES, SERVED, LimitSpec, ObjectsSpec
from trainyard.server.records.contract import AccessKey

GRACE = timedelta(seconds=120)  # between SIGTERM and SIGKILL, as on AWS

# Threads count as processes. Data loaders and libraries need some dozens per core; a fork bomb would take all.
_MIN_PROCESSES = 1024
_PROCESSES_PER_CPU = 512


@dataclass(frozen=True, slots=True)
class YardContext:
    """What is the same for every job of a yard."""

    endpoint: str  # where programs in jobs reach the yard
    objects: ObjectsSpec
    hidden: tuple[Path, ...]  # from all jobs
    environments: Path  # packages that jobs installed, for later jobs of the same account
    warm: Path | None  # sockets of warm workers, by account; None starts every program cold
    warm_idle: timedelta
    doorbell: Path | None = None
    hang_after: timedelta = timedelta(minutes=10)  # without output and processor time
    environments_limit_bytes: int = ENVIRONMENTS_BYTES
    advertised: str = ""  # the endpoint for other machines

    def objects_for(self, job: InstanceJob, key: AccessKey, *, is_here: bool) -> ObjectsSpec:
        """Return where instances find objects: on other machines, at the yard with the attempt's own key."""
        if is_here or self.objects.url:
            return self.objects
        return replace(
            self.objects,
            url=SERVED,
            endpoint=self.advertised,
            region=job.region,
            access_key_id=key.id,
            secret_access_key=key.secret,
            session_token=key.session_token or "",
            keys="",
            master_key_file="",
        )

    def variables(self, job: InstanceJob, key: AccessKey, *, is_here: bool) -> dict[str, str]:
        """Return the variables by which AWS clients in the job find the yard and use the job's role.

        An isolated job cannot reach the yard and gets no credentials.
        """
        always = {
            "AWS_REGION": job.region,
            "AWS_DEFAULT_REGION": job.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        if job.plan.is_isolated:
            return always
        return always | {
            "AWS_ENDPOINT_URL": self.endpoint if is_here else self.advertised,
            "AWS_ACCESS_KEY_ID": key.id,
            "AWS_SECRET_ACCESS_KEY": key.secret,
            "AWS_SESSION_TOKEN": key.session_token or "",
        }


def limits_of(share: Share) -> LimitSpec:
    processes = _MIN_PROCESSES + int(_PROCESSES_PER_CPU * (share.cpus or 0))
    return LimitSpec(cpus=share.cpus, memory_bytes=share.memory_bytes, processes=processes, gpus=share.gpus)
