"""Train a convolutional network on images of digits, as introductions to PyTorch on SageMaker do with MNIST."""

import sys
from pathlib import Path

import sagemaker
from sagemaker.pytorch import PyTorch

data = Path(sys.argv[1])
session = sagemaker.Session()
inputs = session.upload_data(path=str(data), bucket=session.default_bucket(), key_prefix="sagemaker/digits")

network = PyTorch(
    entry_point="digits.py",
    source_dir=str(Path(__file__).parent / "source"),
    role=sagemaker.get_execution_role(session),
    framework_version="1.13.1",
    py_version="py39",
    instance_count=1,
    instance_type="ml.c5.2xlarge",
    hyperparameters={"epochs": 6, "backend": "gloo", "batch-size": 32, "seed": 1},
    metric_definitions=[
        {"Name": "train:loss", "Regex": "Train Epoch: .* Loss: ([0-9.]+)"},
        {"Name": "test:accuracy", "Regex": r"Accuracy: \d+/\d+ \(([0-9.]+)%\)"},
    ],
    sagemaker_session=session,
)
network.fit({"training": f"{inputs}/train", "testing": f"{inputs}/test"})

metrics = session.describe_training_job(network.latest_training_job.name)["FinalMetricDataList"]
found = {metric["MetricName"]: metric["Value"] for metric in metrics}
assert found["test:accuracy"] > 85, found
assert found["train:loss"] < 1, found
