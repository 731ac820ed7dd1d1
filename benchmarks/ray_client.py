"""Jobs for a Ray cluster, in Ray's own environment: `ray_client.py ADDRESS COUNT CPUS COMMAND…`.

It does what `ray job submit` does, through the same Ray client, but without the seconds which that command takes to
start. Prints a JSON object: the time of the first call and of the end of the last job, in nanoseconds since the epoch,
and the logs of all jobs.
"""

import json
import shlex
import sys
import time
from typing import Any

from ray.job_submission import JobStatus, JobSubmissionClient

LOOK_S = 0.02


def main(address: str, count: int, cpus: int, *command: str) -> None:
    client: Any = JobSubmissionClient(address)
    entrypoint = shlex.join(command)
    submitted = time.time_ns()
    jobs = [client.submit_job(entrypoint=entrypoint, entrypoint_num_cpus=cpus) for _ in range(count)]
    waiting = set(jobs)
    while waiting:
        waiting = {job for job in waiting if not JobStatus(client.get_job_status(job)).is_terminal()}
        time.sleep(LOOK_S)
    ended = time.time_ns()
    failed = [job for job in jobs if client.get_job_status(job) != JobStatus.SUCCEEDED]
    assert not failed, f"{failed[0]}: {client.get_job_logs(failed[0])}"
    print(json.dumps({"submitted": submitted, "ended": ended, "logs": [client.get_job_logs(job) for job in jobs]}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
