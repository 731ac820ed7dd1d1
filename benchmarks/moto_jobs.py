"""A moto server with many training jobs in its memory, in moto's own environment: `moto_jobs.py COUNT`.

It listens on a free port of the loopback, prints that port when it is ready, and ends when its input ends.
"""

import sys
from typing import Any

from moto.sagemaker.models import sagemaker_backends
from moto.server import ThreadedMotoServer

ACCOUNT, REGION = "123456789012", "us-east-1"
PROJECTS = ("mnist", "bert", "resnet", "churn", "demand")


def main(count: int) -> None:
    backend: Any = sagemaker_backends[ACCOUNT][REGION]
    for number in range(count):
        backend.create_training_job(
            training_job_name=f"{PROJECTS[number % len(PROJECTS)]}-{number:06}",
            hyper_parameters={"sagemaker_program": '"train.py"'},
            algorithm_specification={"TrainingImage": "pytorch-training:2.13", "TrainingInputMode": "File"},
            role_arn=f"arn:aws:iam::{ACCOUNT}:role/Trainer",
            input_data_config=[],
            output_data_config={"S3OutputPath": "s3://benchmark/out"},
            resource_config={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            vpc_config={},
            stopping_condition={"MaxRuntimeInSeconds": 3600},
            tags=[],
            enable_network_isolation=False,
            enable_inter_container_traffic_encryption=False,
            enable_managed_spot_training=False,
            checkpoint_config={},
            debug_hook_config={},
            debug_rule_configurations=[],
            tensor_board_output_config={},
            experiment_config={},
        )
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]))
