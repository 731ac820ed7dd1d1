"""Train boosted trees in script mode. The script reads its hyperparameters from SM_HPS."""

import sys
from pathlib import Path

import sagemaker
from sagemaker.inputs import TrainingInput
from sagemaker.xgboost import XGBoost

data = Path(sys.argv[1])
session = sagemaker.Session()
bucket = session.default_bucket()
channels = {
    name: TrainingInput(session.upload_data(str(data / name), bucket, f"boosted-trees/{name}"), content_type="text/csv")
    for name in ("train", "test")
}
trees = XGBoost(
    entry_point="train.py",
    source_dir=str(Path(__file__).parent / "source"),
    role=sagemaker.get_execution_role(session),
    framework_version="1.7-1",
    instance_type="ml.m5.xlarge",
    instance_count=1,
    output_path=f"s3://{bucket}/boosted-trees/output",
    hyperparameters={
        "max_depth": 4,
        "eta": 0.3,
        "objective": "multi:softmax",
        "num_class": 10,
        "num_round": 12,
        "eval_metric": "merror",
    },
    metric_definitions=[{"Name": "validation:merror", "Regex": r"test-merror:([0-9.]+)"}],
    sagemaker_session=session,
)
trees.fit(channels, logs="All")

(metric,) = session.describe_training_job(trees.latest_training_job.name)["FinalMetricDataList"]
assert metric["Value"] < 0.15, metric
found = sagemaker.TrainingJobAnalytics(trees.latest_training_job.name, ["validation:merror"], session).dataframe()
assert len(found) > 0
