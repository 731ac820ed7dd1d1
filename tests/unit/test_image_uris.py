import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.image_uris import processor, retrieve


def test_a_built_in_algorithm_is_named_by_position() -> None:
    expected = "433757028032.dkr.ecr.us-west-2.amazonaws.com/image-classification:1"
    assert retrieve("image-classification", "us-west-2", "1") == expected


@pytest.mark.parametrize(
    ("framework", "region", "uri"),
    [
        ("linear-learner", "us-west-2", "174872318107.dkr.ecr.us-west-2.amazonaws.com/linear-learner:1"),
        ("linear-learner", "us-west-1", "632365934929.dkr.ecr.us-west-1.amazonaws.com/linear-learner:1"),
        ("kmeans", "eu-west-1", "438346466558.dkr.ecr.eu-west-1.amazonaws.com/kmeans:1"),
        ("forecasting-deepar", "us-east-1", "522234722520.dkr.ecr.us-east-1.amazonaws.com/forecasting-deepar:1"),
        ("lda", "eu-central-1", "353608530281.dkr.ecr.eu-central-1.amazonaws.com/lda:1"),
        ("debugger", "us-west-2", "895741380848.dkr.ecr.us-west-2.amazonaws.com/sagemaker-debugger-rules:latest"),
        ("object-detection", "cn-north-1", "390948362332.dkr.ecr.cn-north-1.amazonaws.com.cn/object-detection:1"),
    ],
)
def test_algorithms_lie_in_the_accounts_of_their_region(framework: str, region: str, uri: str) -> None:
    assert retrieve(framework, region) == uri


@pytest.mark.parametrize(
    ("version", "tag"),
    [
        ("1", "433757028032.dkr.ecr.us-west-2.amazonaws.com/xgboost:1"),
        ("1.0-1", "246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-xgboost:1.0-1-cpu-py3"),
        ("1.7-1", "246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-xgboost:1.7-1"),
    ],
)
def test_xgboost_moved_with_its_versions(version: str, tag: str) -> None:
    assert retrieve("xgboost", "us-west-2", version) == tag


def test_scikit_learn_has_one_kind_of_image() -> None:
    expected = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3"
    assert retrieve("sklearn", "us-east-1", "1.2-1") == expected


@pytest.mark.parametrize(
    ("framework", "version", "py_version", "instance_type", "repository"),
    [
        ("pytorch", "1.9.0", "py38", "ml.g4dn.xlarge", "pytorch-training:1.9.0-gpu-py38"),
        ("pytorch", "1.9.0", "py3", "ml.g4dn.xlarge", "pytorch-training:1.9.0-gpu-py38"),
        ("pytorch", "1.12", None, "ml.m5.large", "pytorch-training:1.12-cpu-py38"),
        ("pytorch", "2.3.0", None, "local", "pytorch-training:2.3.0-cpu-py311"),
        ("pytorch", None, None, "local_gpu", "pytorch-training:2.8.0-gpu-py312"),
        ("tensorflow", "2.12", "py310", "ml.p3.16xlarge", "tensorflow-training:2.12-gpu-py310"),
        ("tensorflow", "2.1.0", None, "ml.c5.xlarge", "tensorflow-training:2.1.0-cpu-py3"),
    ],
)
def test_a_frameworks_image_has_version_processor_and_python(
    framework: str, version: str | None, py_version: str | None, instance_type: str, repository: str
) -> None:
    registry = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
    assert retrieve(framework, "us-east-1", version, py_version, instance_type) == f"{registry}/{repository}"


def test_images_for_serving_have_a_repository_of_their_own() -> None:
    uri = retrieve("pytorch", "eu-west-3", "2.0", "py310", "ml.m5.large", image_scope="inference")
    assert uri.endswith("/pytorch-inference:2.0-cpu-py310")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("chainer", "us-east-1"), 'no image for "chainer"; the known ones are blazingtext'),
        (("kmeans", "moon-1"), 'no kmeans image in the region "moon-1"; name one of af-south-1'),
        (("pytorch", "us-east-1", "2.0"), "pass an instance_type"),
        (("pytorch", "us-east-1", "1.1.0", None, "ml.m5.large"), "from version 1.2 on, not 1.1.0"),
        (("pytorch", "us-east-1", "<VERSION>", None, "ml.m5.large"), "write it like 2.8.0"),
        (("pytorch", "us-east-1", "2.0", None, "m5.large"), '"m5.large" is not an instance type'),
    ],
)
def test_a_framework_without_an_image_is_refused_with_a_suggestion(arguments: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint.replace(".", r"\.")):
        retrieve(*arguments)


@pytest.mark.parametrize(
    ("instance_type", "has"), [("ml.p4d.24xlarge", "gpu"), ("ml.g5.xlarge", "gpu"), ("ml.c5.large", "cpu")]
)
def test_the_family_tells_the_processor(instance_type: str, has: str) -> None:
    assert processor(instance_type) == has
