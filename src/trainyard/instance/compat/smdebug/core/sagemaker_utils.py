"""Where a program runs."""

import os


def is_sagemaker_job() -> bool:
    return "TRAINING_JOB_NAME" in os.environ
