"""Train on three instances. The script is the same as for one; `distribution` says how to launch its processes.

To run it with the `sagemaker` SDK, run `trainyard connect` and replace `trainyard` by `sagemaker`.
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
    # Or {"torch_distributed": {"enabled": True}}.
    distribution={"mpi": {"enabled": True, "processes_per_host": 1}},
    metric_definitions=[{"Name": "loss", "Regex": r"rank 0 .*loss=([0-9.]+)"}],
    sagemaker_session=session,
)
estimator.fit()
print("The model is", estimator.model_data)
