"""Tune with ModelTrainer and the tuner of version 3."""

import sys
from pathlib import Path

from sagemaker.core.helper.session_helper import Session
from sagemaker.core.parameter import CategoricalParameter, IntegerParameter
from sagemaker.core.training.configs import Compute, InputData, SourceCode
from sagemaker.train import ModelTrainer
from sagemaker.train.tuner import HyperparameterTuner

data = Path(sys.argv[1])
trainer = ModelTrainer(
    training_image="683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3",
    source_code=SourceCode(
        source_dir=str(Path(__file__).parent.parent / "random_forest" / "source"), entry_script="train.py"
    ),
    compute=Compute(instance_type="ml.m5.large", instance_count=1),
    base_job_name="tuned-forest",
)
tuner = HyperparameterTuner(
    model_trainer=trainer,
    objective_metric_name="accuracy",
    metric_definitions=[{"Name": "accuracy", "Regex": "test accuracy: ([0-9.]+)"}],
    hyperparameter_ranges={
        "n-estimators": IntegerParameter(1, 60),
        "min-samples-leaf": CategoricalParameter([1, 5, 20]),
    },
    max_jobs=3,
    max_parallel_jobs=2,
)
session = Session()
inputs = [
    InputData(channel_name=name, data_source=session.upload_data(str(data / name), key_prefix=f"tuned-forest/{name}"))
    for name in ("train", "test")
]
tuner.tune(inputs=inputs, wait=True)
tuned = tuner.describe()
assert tuned.hyper_parameter_tuning_job_status == "Completed"
best = tuned.best_training_job
assert best.final_hyper_parameter_tuning_job_objective_metric.value > 0.8
