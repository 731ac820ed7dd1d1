"""Train a random forest in script mode, find the metric in the log, and load the model from its archive."""

import sys
import tarfile
import tempfile
from pathlib import Path

import sagemaker
from sagemaker.sklearn import SKLearn

data = Path(sys.argv[1])
session = sagemaker.Session()
train = session.upload_data(str(data / "train"), key_prefix="random-forest/train")
test = session.upload_data(str(data / "test"), key_prefix="random-forest/test")

forest = SKLearn(
    entry_point="train.py",
    source_dir=str(Path(__file__).parent / "source"),
    role=sagemaker.get_execution_role(session),
    framework_version="1.0-1",
    instance_type="ml.m5.large",
    instance_count=1,
    base_job_name="random-forest",
    hyperparameters={"n-estimators": 50, "min-samples-leaf": 2},
    metric_definitions=[{"Name": "test:accuracy", "Regex": "test accuracy: ([0-9.]+)"}],
    sagemaker_session=session,
)
forest.fit({"train": train, "test": test})

metrics = session.describe_training_job(forest.latest_training_job.name)["FinalMetricDataList"]
accuracy = {metric["MetricName"]: metric["Value"] for metric in metrics}["test:accuracy"]
assert accuracy > 0.9, accuracy
with tempfile.TemporaryDirectory() as folder:
    bucket, _, key = forest.model_data[len("s3://") :].partition("/")
    session.download_data(folder, bucket, key)
    with tarfile.open(Path(folder) / "model.tar.gz") as archive:
        assert "model.joblib" in [name.split("/")[-1] for name in archive.getnames()]
