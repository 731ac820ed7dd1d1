"""Train from Python, with the names, modules and arguments of the sagemaker SDK.

If no yard is running, the script starts one. To run it with the `sagemaker` SDK, run `trainyard connect` and replace
`trainyard` by `sagemaker`.
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
