"""Train from Python: the names, modules and arguments of the sagemaker SDK. Run it with a yard, or without: one is
started. With `sagemaker` in place of `trainyard` it does the same, after `trainyard connect`.
"""

from pathlib import Path

import sklearn.datasets

import trainyard
from trainyard.pytorch import PyTorch

session = trainyard.Session()
digits = Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz"
estimator = PyTorch(
    entry_point=str(Path(__file__).with_name("train_digits.py")),
    role=trainyard.get_execution_role(session),
    framework_version="2.8.0",
    py_version="py312",
    instance_count=1,
    instance_type="ml.m5.large",
    hyperparameters={"epochs": 4},
    metric_definitions=[{"Name": "accuracy", "Regex": "accuracy=([0-9.]+)"}],
    sagemaker_session=session,
)
estimator.fit({"data": session.upload_data(str(digits), key_prefix="digits")})
print(estimator.model_data)
