"""Train from a folder like a repository: a package, a script below the root, a configuration, and requirements."""

import sys
from pathlib import Path

import sagemaker
from sagemaker.pytorch import PyTorch

data = Path(sys.argv[1])
session = sagemaker.Session()
estimator = PyTorch(
    entry_point="scripts/train.py",
    source_dir=str(Path(__file__).parent / "source"),
    role=sagemaker.get_execution_role(session),
    framework_version="1.13.1",
    py_version="py39",
    instance_count=1,
    instance_type="ml.m5.large",
    hyperparameters={"config": "configs/small.json"},
    environment={"PYTHONPATH": "/opt/ml/code"},
    metric_definitions=[{"Name": "accuracy", "Regex": "accuracy=([0-9.]+)"}],
    sagemaker_session=session,
)
estimator.fit(session.upload_data(str(data / "train"), key_prefix="project"))
(metric,) = session.describe_training_job(estimator.latest_training_job.name)["FinalMetricDataList"]
assert metric["Value"] > 0.85, metric
