"""Train with ModelTrainer from a folder with requirements."""

import sys
from pathlib import Path

from sagemaker.core.training.configs import Compute, InputData, SourceCode
from sagemaker.train import ModelTrainer

data = Path(sys.argv[1])
trainer = ModelTrainer(
    training_image="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312",
    source_code=SourceCode(
        source_dir=str(Path(__file__).parent / "source"), requirements="requirements.txt", entry_script="train.py"
    ),
    compute=Compute(instance_type="ml.m5.xlarge", instance_count=1),
    hyperparameters={"epochs": 40, "learning-rate": 0.02},
    base_job_name="trainer-with-requirements",
)
trainer.train(input_data_config=[InputData(channel_name="train", data_source=str(data / "train"))])
assert trainer._latest_training_job.training_job_status == "Completed"
