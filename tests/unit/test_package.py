"""The names of the package, which are imported on first use."""

import subprocess
import sys

import pytest

import trainyard


def test_every_name_that_the_package_exports_exists() -> None:
    assert [name for name in trainyard.__all__ if getattr(trainyard, name, None) is None] == []


def test_the_modules_of_the_package_need_no_import_of_their_own() -> None:
    program = "import trainyard; print(trainyard.estimator.Estimator.__name__, trainyard.inputs.TrainingInput.__name__)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["Estimator", "TrainingInput"]


def test_the_sdk_imports_no_third_party_package_until_it_calls() -> None:
    program = "import sys, trainyard.pytorch, trainyard.tensorflow, trainyard.image_uris; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert not {"botocore", "click", "obstore", "sqlalchemy", "torch"} & {
        name.partition(".")[0] for name in run.stdout.split()
    }


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        trainyard.Nothing  # noqa: B018
