"""Tune a random forest with the tuner of version 2."""

import sys
from pathlib import Path

import sagemaker
from sagemaker.sklearn import SKLearn
from sagemaker.tuner import CategoricalParameter, HyperparameterTuner, IntegerParameter

data = Path(sys.argv[1])
session = sagemaker.Session()
channels = {
    name: session.upload_data(str(data / name), key_prefix=f"tuned-forest/{name}") for name in ("train", "test")
}
forest = SKLearn(
    entry_point="train.py",
    source_dir=str(Path(__file__).parent.parent / "random_forest" / "source"),
    role=sagemaker.get_execution_role(session),
    framework_version="1.0-1",
    instance_type="ml.m5.large",
    instance_count=1,
    sagemaker_session=session,
)
tuner = HyperparameterTuner(
    forest,
    objective_metric_name="accuracy",
    metric_definitions=[{"Name": "accuracy", "Regex": "test accuracy: ([0-9.]+)"}],
    hyperparameter_ranges={
        "n-estimators": IntegerParameter(1, 60),
        "min-samples-leaf": CategoricalParameter([1, 5, 20]),
    },
    max_jobs=4,
    max_parallel_jobs=2,
    base_tuning_job_name="tuned-forest",
)
tuner.fit(channels)
tuner.wait()
results = tuner.analytics().dataframe()
assert list(results["TrainingJobStatus"]) == ["Completed"] * 4
best = session.describe_training_job(tuner.best_training_job())
assert best["FinalMetricDataList"][0]["Value"] >= max(results["FinalObjectiveValue"]) - 1e-6
assert tuner.best_estimator().model_data == best["ModelArtifacts"]["S3ModelArtifacts"]
