"""Runs one `fit` of the SDK in its own process and prints its seconds: `fit_client.py SCRIPT`."""

import sys
import time
from pathlib import Path

import trainyard
from trainyard.pytorch import PyTorch


def main(script: Path) -> None:
    estimator = PyTorch(
        entry_point=script.name,
        source_dir=str(script.parent),
        role=trainyard.get_execution_role(),
        framework_version="2.13",
        instance_count=1,
        instance_type="ml.m5.large",
    )
    begun = time.perf_counter()
    estimator.fit()
    print(time.perf_counter() - begun)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
