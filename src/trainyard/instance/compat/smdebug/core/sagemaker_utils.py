"""Detects whether a program runs in a job."""

import os


def is_sagemaker_job() -> bool:
    return "TRAINING_JOB_NAME" in os.environ
