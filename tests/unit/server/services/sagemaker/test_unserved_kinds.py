from typing import Any

import pytest

from tests.unit.server.services.accounts import As, model_of
from trainyard.server.services.sagemaker.unserved_kinds import OPERATIONS
from trainyard.wire.fault import Fault

MODEL = model_of("sagemaker")
# ListMlflowApps is not in the models of older versions of botocore.
LISTS = sorted(name for name in OPERATIONS if name.startswith("List") and name in MODEL.operation_names)
NOT_FOUND: list[tuple[str, dict[str, Any], str, str]] = [
    ("DescribeTransformJob", {"TransformJobName": "x"}, "ValidationException", "requested job with name: x"),
    ("DescribeModel", {"ModelName": "x"}, "ValidationException", 'Could not find model "{arn}:model/x".'),
    ("DescribeEndpoint", {"EndpointName": "x"}, "ValidationException", 'Could not find endpoint "{arn}:endpoint/x".'),
    ("DescribePipeline", {"PipelineName": "x"}, "ResourceNotFound", "Pipeline '{arn}:pipeline/x' does not exist."),
]


@pytest.mark.parametrize("operation", [name for name in LISTS if name != "ListPipelineExecutions"])
def test_lists_of_what_a_yard_does_not_have_yet_are_empty(anna: As, operation: str) -> None:
    [(_, listed)] = anna("sagemaker", operation).items()
    assert listed == []


@pytest.mark.parametrize(("operation", "asked", "code", "words"), NOT_FOUND, ids=[row[0] for row in NOT_FOUND])
def test_what_a_yard_does_not_have_is_not_found_in_the_words_of_aws(
    anna: As, operation: str, asked: dict[str, Any], code: str, words: str
) -> None:
    with pytest.raises(Fault) as caught:
        anna("sagemaker", operation, **asked)
    assert caught.value.code == code
    assert words.format(arn=f"arn:aws:sagemaker:eu-west-3:{anna.account}") in caught.value.message


def test_every_look_up_finds_nothing(anna: As) -> None:
    for operation in sorted(name for name in OPERATIONS if name.startswith("Describe")):
        member = next(iter(MODEL.operation_model(operation).input_shape.members))
        with pytest.raises(Fault, match=r"(does not exist|Could not find)"):
            anna("sagemaker", operation, **{member: "some-name"})


def test_a_token_that_no_list_has_given_is_invalid(anna: As) -> None:
    with pytest.raises(Fault, match="The NextToken is invalid"):
        anna("sagemaker", "ListTransformJobs", NextToken="more")
