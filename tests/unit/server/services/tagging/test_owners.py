import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.tagging.owners import ArnParts, parse_arn


@pytest.mark.parametrize(
    ("arn", "parts"),
    [
        ("arn:aws:s3:::data", ArnParts("s3", "", "bucket")),
        ("arn:aws:iam::123456789012:role/team/r", ArnParts("iam", "123456789012", "role")),
        ("arn:aws:logs:eu-west-3:123456789012:log-group:/a:b", ArnParts("logs", "123456789012", "log-group")),
        (
            "arn:aws:sagemaker:eu-west-3:123456789012:training-job/x",
            ArnParts("sagemaker", "123456789012", "training-job"),
        ),
    ],
)
def test_an_arn_tells_service_account_and_type(arn: str, parts: ArnParts) -> None:
    assert parse_arn(arn) == parts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "data",
        "arn:aws:s3",
        "arn:aws:s3:::",
        "arn:other:s3:::data",
        "arn:aws:S 3:::data",
        "arn:aws:s3:::\ud800",
        "arn:aws:s3:::a\0",
    ],
)
def test_an_invalid_arn_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not an ARN"):
        parse_arn(text)
