import json
from typing import Any

import cbor2
import pytest

from trainyard.wire.limits import DEFAULT_LIMITS, limits_of, too_large
from trainyard.wire.models import Models
from trainyard.wire.protocols.rpc_v2_cbor import check_items


def _operation(service: str, name: str) -> Any:
    return Models().service(service).operation_model(name)


def test_the_largest_calls_that_aws_allows_fit() -> None:
    training = limits_of(_operation("sagemaker", "CreateTrainingJob"))
    largest = {
        "HyperParameters": {f"{number:0256}": "v" * 2500 for number in range(100)},
        "Environment": {f"{number:0512}": "v" * 512 for number in range(100)},
        "Tags": [{"Key": "k" * 128, "Value": "v" * 256}] * 50,
    }
    assert len(json.dumps(largest)) < training.size_bytes
    events = [{"timestamp": 1_700_000_000_000, "message": "\u0430" * 52} for _ in range(10_000)]
    assert len(json.dumps(events)) < limits_of(_operation("logs", "PutLogEvents")).size_bytes
    part = f"<Part><ETag>{'&quot;'}{'a' * 32}{'&quot;'}</ETag><PartNumber>10000</PartNumber>"
    part += f"<ChecksumSHA256>{'a' * 44}</ChecksumSHA256></Part>"
    assert len(part) * 10_000 < limits_of(_operation("s3", "CompleteMultipartUpload")).size_bytes
    key = f"<Object><Key>{'&quot;' * 1024}</Key><VersionId>null</VersionId></Object>"
    assert len(key) * 1000 < limits_of(_operation("s3", "DeleteObjects")).size_bytes


def test_a_body_that_is_too_large_is_refused_with_the_limit_and_advice() -> None:
    fault = too_large(_operation("sagemaker", "CreateTrainingJob"), DEFAULT_LIMITS.size_bytes, size_bytes=32_000_000)
    assert (fault.code, fault.status) == ("RequestEntityTooLarge", 413)
    assert fault.message == (
        "The body of CreateTrainingJob has 32000000 bytes; at most 1048576 are accepted. "
        "Split the call into smaller ones."
    )
    assert too_large(_operation("s3", "DeleteObjects"), 10).code == "MaxMessageLengthExceeded"
    assert "this request is longer than 10 bytes" in too_large(None, 10).message


@pytest.mark.parametrize("item", [[], {}, 1, "text", b"bytes", 1.5, {"a": [2]}, "t" * 300])
def test_cbor_of_too_many_items_is_refused_before_it_is_decoded(item: Any) -> None:
    body = cbor2.dumps([item] * 1000)
    with pytest.raises(ValueError, match="more than 900 values"):
        check_items(body, 900)
    check_items(body, 5000)


@pytest.mark.parametrize("body", [b"\xbb" * 1000, b"\x5b" + b"\xff" * 1000, b"\x9f" + b"\x01" * 400])
def test_cbor_that_is_not_in_order_is_left_to_the_decoder(body: bytes) -> None:
    check_items(body, 500)
