"""Managed spot training with the sagemaker SDK after `trainyard connect`: a job is interrupted and resumes."""

import contextlib
import io
import re
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import sagemaker
from sagemaker.pytorch import PyTorch

SCRIPT = """
import pathlib, time

kept = pathlib.Path("/opt/ml/checkpoints/count")
count = int(kept.read_text()) if kept.exists() else 0
print(f"began at {count}", flush=True)
while count < 100:
    time.sleep(0.1)
    count += 1
    fresh = kept.with_name("fresh")
    fresh.write_text(str(count))
    fresh.replace(kept)
pathlib.Path("/opt/ml/model/count").write_text(str(count))
"""


def main(trainyard: str) -> None:
    session = sagemaker.Session()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(SCRIPT)
        job = PyTorch(
            entry_point="train.py",
            source_dir=folder,
            role=sagemaker.get_execution_role(session),
            framework_version="1.13.1",
            py_version="py39",
            instance_count=1,
            instance_type="ml.m5.large",
            use_spot_instances=True,
            max_run=600,
            max_wait=1200,
            checkpoint_s3_uri=f"s3://{session.default_bucket()}/{uuid.uuid4().hex}/checkpoints",
            sagemaker_session=session,
        )
        job.fit(wait=False)
        name = job.latest_training_job.name
        cloud = threading.Thread(target=interrupt, args=(trainyard, session, name))
        cloud.start()
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            session.logs_for_job(name, wait=True, poll=1)
        cloud.join()
    told = session.describe_training_job(name)
    assert told["TrainingJobStatus"] == "Completed", told
    assert "Interrupted" in [step["Status"] for step in told["SecondaryStatusTransitions"]]
    # Which of them the SDK shows depends on its timing.
    first, second = printed(session, name)
    assert "began at 0" in first
    assert re.search(r"began at [1-9]", second), second
    saved = re.search(r"Managed Spot Training savings: ([0-9.]+)%", shown.getvalue())
    assert saved is not None, shown.getvalue()
    assert 65 <= float(saved.group(1)) <= 75, saved.group(0)


def printed(session: sagemaker.Session, name: str) -> list[str]:
    """Return the output of the job, attempt by attempt."""
    logs, group = session.boto_session.client("logs"), "/aws/sagemaker/TrainingJobs"
    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{name}/")["logStreams"]
    pages = [
        logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True)
        for stream in streams
    ]
    return ["\n".join(event["message"] for event in page["events"]) for page in pages]


def interrupt(trainyard: str, session: sagemaker.Session, name: str) -> None:
    while session.describe_training_job(name)["SecondaryStatus"] != "Training":
        time.sleep(0.1)
    time.sleep(3)
    subprocess.run([trainyard, "interrupt", name], check=True)


main(sys.argv[1])
