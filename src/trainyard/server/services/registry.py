"""Which services the yard has, and what each serves. A service is imported when it is first called."""

import importlib
from dataclasses import dataclass
from functools import cache

from trainyard.server.services.contract import Operations
from trainyard.wire.fault import FaultTable

MODULES = {
    "s3": "trainyard.server.services.s3",
    "sagemaker": "trainyard.server.services.sagemaker",
    "sts": "trainyard.server.services.sts",
    "iam": "trainyard.server.services.iam",
    "logs": "trainyard.server.services.logs",
    "cloudwatch": "trainyard.server.services.cloudwatch",
    "resourcegroupstaggingapi": "trainyard.server.services.tagging",
    "ecr": "trainyard.server.services.ecr",
    "trainyard": "trainyard.server.services.trainyard",
}

_NO_TABLE = FaultTable({})


@dataclass(frozen=True, slots=True)
class Service:
    operations: Operations
    faults: FaultTable


@cache
def service(name: str) -> Service:
    """The tables of a service by its botocore name; empty ones when the yard has none of it."""
    if name not in MODULES:
        return Service({}, _NO_TABLE)
    module = importlib.import_module(MODULES[name])
    return Service(module.OPERATIONS, module.FAULTS)
