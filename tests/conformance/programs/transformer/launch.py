"""Train a small transformer with the HuggingFace estimator and transformers' Trainer."""

from pathlib import Path

import sagemaker
from sagemaker.huggingface import HuggingFace

session = sagemaker.Session()
estimator = HuggingFace(
    entry_point="train.py",
    source_dir=str(Path(__file__).parent / "source"),
    role=sagemaker.get_execution_role(session),
    transformers_version="4.26",
    pytorch_version="1.13",
    py_version="py39",
    instance_type="ml.p3.2xlarge",
    instance_count=1,
    hyperparameters={"epochs": 2, "train_batch_size": 16, "learning_rate": 3e-3},
    metric_definitions=[{"Name": "eval_loss", "Regex": "'eval_loss': '?([0-9.]+)"}],
    sagemaker_session=session,
)
estimator.fit()
(metric,) = session.describe_training_job(estimator.latest_training_job.name)["FinalMetricDataList"]
assert metric["MetricName"] == "eval_loss"
assert metric["Value"] < 0.6, metric
