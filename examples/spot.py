"""Train on spot instances: a job costs less and may be interrupted. This one is, once, and resumes from a checkpoint.

To run it with the `sagemaker` SDK, run `trainyard connect` and replace `trainyard` by `sagemaker`.
"""

import subprocess
import sys
import time
import uuid
from pathlib import Path

import trainyard
from trainyard.pytorch import PyTorch

session = trainyard.Session()
bucket, checkpoints = session.default_bucket(), f"spot-example/{uuid.uuid4().hex}"
estimator = PyTorch(
    entry_point=str(Path(__file__).with_name("resuming.py")),
    role=trainyard.get_execution_role(session),
    framework_version="2.8.0",
    py_version="py312",
    instance_count=1,
    instance_type="ml.m5.large",
    hyperparameters={"epochs": 8, "pause": 1},
    use_spot_instances=True,
    # Seconds of training, over all attempts.
    max_run=600,
    # Seconds of training and of waiting for capacity.
    max_wait=1200,
    # Restored before each attempt, saved while it runs.
    checkpoint_s3_uri=f"s3://{bucket}/{checkpoints}",
    sagemaker_session=session,
)
estimator.fit(wait=False)
job = estimator.latest_training_job
assert job is not None

# Wait for the first checkpoint.
while not session.list_s3_files(bucket, checkpoints):
    time.sleep(0.2)
# The cloud needs its machine back. An on-demand job that finds no capacity has the same effect.
subprocess.run([Path(sys.executable).with_name("trainyard"), "interrupt", job.name], check=True)

# Prints the log from the first line until the job ends.
estimator.logs()
description = job.describe()
print(*(step["Status"] for step in description["SecondaryStatusTransitions"]), sep=" → ")
trained_s, billed_s = description["TrainingTimeInSeconds"], description["BillableTimeInSeconds"]
print(f"trained for {trained_s} s, of which {billed_s} s are billed")
