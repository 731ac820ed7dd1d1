"""The services of the yard. A service module is imported on its first call."""

import importlib
from dataclasses import dataclass
from functools import cache

from trainyard.server.services.contract import Operations
from trainyard.wire.fault import FaultTable

MODULES = {
    "s3": "trainyard.server.services.s3",
    "sagemaker": "trainyard.server.services.sagemaker",
    "sagemaker-metrics": "trainyard.server.services.sagemaker_metrics",
    "sts": "trainyard.server.services.sts",
    "iam": "trainyard.server.services.iam",
    "logs": "trainyard.server.services.logs",
    "cloudwatch": "trainyard.server.services.cloudwatch",
    "resourcegroupstaggingapi": "trainyard.server.services.tagging",
    "kms": "trainyard.server.services.kms",
    "ecr": "trainyard.server.services.ecr",
    "trainyard": "trainyard.server.services.trainyard",
}

_NO_TABLE = FaultTable({})


@dataclass(frozen=True, slots=True)
class Service:
    """The tables of one service module."""

    operations: Operations
    faults: FaultTable


@cache
def service(name: str) -> Service:
    """Return the tables of a service by its botocore name; empty tables if the yard does not serve it."""
    if name not in MODULES:
        return Service({}, _NO_TABLE)
    module = importlib.import_module(MODULES[name])
    return Service(module.OPERATIONS, module.FAULTS)
