"""Train on spot: the job costs less and may be interrupted. Here it is, once, and goes on from its last checkpoint.

With `sagemaker` in place of `trainyard` it does the same, after `trainyard connect`.
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
    max_run=600,  # of training, all attempts together
    max_wait=1200,  # of training and of waiting for a place
    checkpoint_s3_uri=f"s3://{bucket}/{checkpoints}",  # restored before each attempt, kept while it runs
    sagemaker_session=session,
)
estimator.fit(wait=False)
job = estimator.latest_training_job
assert job is not None

while not session.list_s3_files(bucket, checkpoints):  # until the first checkpoint is kept
    time.sleep(0.2)
# The cloud needs its machine back. A job on demand that finds no room does the same.
subprocess.run([Path(sys.executable).with_name("trainyard"), "interrupt", job.name], check=True)

estimator.logs()  # from the first line to the end of the job
told = job.describe()
print(*(step["Status"] for step in told["SecondaryStatusTransitions"]), sep=" → ")
print(f"trained for {told['TrainingTimeInSeconds']} s, of which {told['BillableTimeInSeconds']} s are billed")
