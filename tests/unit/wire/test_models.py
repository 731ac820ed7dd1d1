import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import botocore
import pytest
from botocore.loaders import Loader

from trainyard.foundation.errors import NotFound
from trainyard.wire.models import OWN_MODELS, Models


def test_a_model_has_every_operation_and_none_of_the_prose() -> None:
    service = Models().service("sagemaker")
    operation = service.operation_model("CreateTrainingJob")
    assert operation.input_shape.members["TrainingJobName"].metadata["max"] == 63
    assert operation.documentation == ""
    assert operation.input_shape.members["RoleArn"].documentation == ""


def test_a_member_that_is_called_like_prose_stays() -> None:
    members = Models().service("ecr").shape_for("Repository").members
    assert "repositoryName" in members
    described = Models().service("sagemaker").shape_for("ModelPackageContainerDefinition").members
    assert "ModelInput" in described


def test_the_newest_version_of_a_service_is_taken() -> None:
    assert Models().service("ec2").api_version == "2016-11-15"


def test_our_own_service_is_a_model_like_any_other_and_not_cached(tmp_path: Path) -> None:
    service = Models(tmp_path).service("trainyard")
    assert "FollowJob" in service.operation_names
    assert service.operation_model("FollowJob").has_streaming_output
    assert service.operation_model("FollowJob").documentation == ""
    assert list(tmp_path.iterdir()) == []


def test_botocore_finds_our_models_by_their_folder() -> None:
    loader = Loader(extra_search_paths=[str(OWN_MODELS)])
    described = loader.load_service_model("trainyard", "service-2")
    assert described["metadata"]["signingName"] == "trainyard"
    for name, operation in described["operations"].items():
        assert operation["documentation"].endswith("."), f"{name} says nothing of itself"


def test_a_service_is_loaded_once_however_many_threads_ask() -> None:
    models = Models()
    with ThreadPoolExecutor(8) as threads:
        loaded = set(map(id, threads.map(lambda _: models.service("sts"), range(32))))
    assert len(loaded) == 1


def test_a_service_that_botocore_does_not_have_is_not_found() -> None:
    with pytest.raises(NotFound, match="no-such-service"):
        Models().service("no-such-service")


def test_a_cached_model_is_the_model_that_was_built(tmp_path: Path) -> None:
    built = Models(tmp_path / "models").service("logs")
    cached = Models(tmp_path / "models").service("logs")
    assert [file.name for file in (tmp_path / "models").iterdir()] == [f"logs-{botocore.__version__}.json"]
    assert cached.operation_names == built.operation_names
    assert cached.metadata == built.metadata


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff",
        b'{"stamp": [1, "logs"',
        b"[]",
        b'{"stamp": [1, "s3", "1.0"], "model": {"metadata": {}, "operations": {}, "shapes": {}}}',
    ],
    ids=["empty", "binary", "torn", "a list", "another service's"],
)
def test_a_cache_file_that_is_not_ours_is_built_again(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / f"logs-{botocore.__version__}.json"
    file.write_bytes(content)
    assert "PutLogEvents" in Models(tmp_path).service("logs").operation_names
    assert json.loads(file.read_bytes())["model"]["metadata"]["serviceId"] == "CloudWatch Logs"


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    assert "GetCallerIdentity" in Models(tmp_path / "file").service("sts").operation_names
    assert caplog.messages == ["service model not cached"]


def test_a_cache_of_others_is_read_and_not_written(tmp_path: Path) -> None:
    Models(tmp_path, writes=False).service("logs")
    assert list(tmp_path.iterdir()) == []
    Models(tmp_path).service("logs")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert Models(tmp_path, writes=False).service("logs").service_name == "logs"
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_importing_the_wire_does_not_import_botocore() -> None:
    program = "import sys, trainyard.wire.routing, trainyard.wire.validation; print('botocore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
