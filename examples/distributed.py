"""Train on three instances together. The script is the same as on one; `distribution` says how its processes meet.

With `sagemaker` in place of `trainyard` it does the same, after `trainyard connect`.
"""

from pathlib import Path

import trainyard
from trainyard.pytorch import PyTorch

session = trainyard.Session()
estimator = PyTorch(
    entry_point=str(Path(__file__).with_name("train_together.py")),
    role=trainyard.get_execution_role(session),
    framework_version="2.8.0",
    py_version="py312",
    instance_count=3,
    instance_type="ml.m5.large",
    distribution={"mpi": {"enabled": True, "processes_per_host": 1}},  # or {"torch_distributed": {"enabled": True}}
    metric_definitions=[{"Name": "loss", "Regex": r"rank 0 .*loss=([0-9.]+)"}],
    sagemaker_session=session,
)
estimator.fit()
print("The model is", estimator.model_data)
