"""Train with scripts that install what they need themselves, as many notebooks do."""

from pathlib import Path

import sagemaker
from sagemaker.pytorch import PyTorch

session = sagemaker.Session()
for entry_point in ("install.py", "install.sh"):
    estimator = PyTorch(
        entry_point=entry_point,
        source_dir=str(Path(__file__).parent / "source"),
        role=sagemaker.get_execution_role(session),
        framework_version="1.13.1",
        py_version="py39",
        instance_count=1,
        instance_type="ml.m5.large",
        sagemaker_session=session,
    )
    estimator.fit()
