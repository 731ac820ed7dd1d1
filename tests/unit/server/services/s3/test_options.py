from typing import Any

import pytest

from tests.unit.server.services.s3.front import Front, refused_put


@pytest.mark.parametrize(
    "option",
    [
        {"ACL": "public-read"},
        {"GrantFullControl": "id=abc"},
        {"SSECustomerAlgorithm": "AES256"},
        {"ObjectLockMode": "GOVERNANCE"},
        {"ObjectLockLegalHoldStatus": "ON"},
        {"WriteOffsetBytes": 3},
    ],
)
def test_an_option_that_is_not_served_is_refused_by_name(s3: Front, option: dict[str, Any]) -> None:
    fault = refused_put(s3, **option)
    assert (fault.code, fault.status) == ("NotImplemented", 501)
    assert next(iter(option)) in fault.message or "public-read" in fault.message


@pytest.mark.parametrize("acl", ["private", "bucket-owner-full-control"])
def test_an_acl_that_says_what_is_so_anyway_is_accepted(s3: Front, acl: str) -> None:
    s3.put("data", "key", b"hello", ACL=acl)
    assert s3.keys("data") == ["key"]
