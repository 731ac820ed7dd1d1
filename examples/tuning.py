"""Tune the learning rate and the batch size of `train_digits.py`. Unpromising trials stop early.

To run it with the `sagemaker` SDK, run `trainyard connect`, and replace `trainyard` by `sagemaker` and "Curve" by
"Auto".
"""

import tempfile
from pathlib import Path

import sklearn.datasets

import trainyard
from trainyard.pytorch import PyTorch
from trainyard.tuner import ContinuousParameter, HyperparameterTuner, IntegerParameter

session = trainyard.Session()
digits = Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz"
estimator = PyTorch(
    entry_point=str(Path(__file__).with_name("train_digits.py")),
    role=trainyard.get_execution_role(session),
    framework_version="2.8.0",
    py_version="py312",
    instance_count=1,
    instance_type="ml.m5.large",
    hyperparameters={"epochs": 10},
    metric_definitions=[{"Name": "accuracy", "Regex": "accuracy=([0-9.]+)"}],
    sagemaker_session=session,
)
tuner = HyperparameterTuner(
    estimator,
    objective_metric_name="accuracy",
    hyperparameter_ranges={
        "rate": ContinuousParameter(0.0001, 0.3, scaling_type="Logarithmic"),
        "batch": IntegerParameter(8, 256, scaling_type="Logarithmic"),
    },
    objective_type="Maximize",
    max_jobs=12,
    max_parallel_jobs=2,
    early_stopping_type="Curve",
)
tuner.fit({"data": session.upload_data(str(digits), key_prefix="tuning-example")})

best = tuner.best_estimator()
print("the best network:", best.hyperparameters(), best.model_data)

# More trials in narrower ranges, which build on the results of the first ones.
again = tuner.identical_dataset_and_algorithm_tuner(
    hyperparameter_ranges={
        "rate": ContinuousParameter(0.001, 0.02, scaling_type="Logarithmic"),
        "batch": IntegerParameter(8, 64),
    },
    max_jobs=4,
)
again.fit({"data": session.upload_data(str(digits), key_prefix="tuning-example")})
overall = again.describe()["OverallBestTrainingJob"]
print("the best of both:", overall["TrainingJobName"], overall["FinalHyperParameterTuningJobObjectiveMetric"]["Value"])

page = Path(tempfile.mkdtemp()) / "study.html"
tuner.plots.save(page)
print("charts of the first:", page)
