"""Train with Lightning, which comes with the requirements of the script, on two instances with torchrun."""

from pathlib import Path

import sagemaker
from sagemaker.pytorch import PyTorch

session = sagemaker.Session()
estimator = PyTorch(
    entry_point="train.py",
    source_dir=str(Path(__file__).parent / "source"),
    role=sagemaker.get_execution_role(session),
    image_uri="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.3.0-cpu-py311",
    instance_type="ml.m5.large",
    instance_count=2,
    distribution={"torch_distributed": {"enabled": True}},
    hyperparameters={"max_epochs": 3},
    metric_definitions=[{"Name": "val_loss", "Regex": "val_loss=([0-9.]+)"}],
    sagemaker_session=session,
)
estimator.fit()
described = session.describe_training_job(estimator.latest_training_job.name)
(metric,) = described["FinalMetricDataList"]
assert metric["Value"] < 0.1, metric
