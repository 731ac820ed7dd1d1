"""A recorded profile, written once for all tests that only read it."""

from pathlib import Path

import pytest

from tests.unit._sdk.profiling.recorded_profile import write_profile, write_python_profiles, write_trace


@pytest.fixture(scope="package")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_profile(tmp_path_factory.mktemp("profiler-output"))
    write_trace(root)
    write_python_profiles(root)
    return root
