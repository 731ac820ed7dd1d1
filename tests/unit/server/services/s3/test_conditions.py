from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.services.s3.front import NOON, Front, refused_put
from trainyard.wire.fault import Fault

BEFORE, AFTER = NOON - timedelta(days=1), NOON + timedelta(days=1)
SECOND = NOON.replace(microsecond=0)


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ({"IfMatch": "{etag}"}, 200),
        ({"IfMatch": "*"}, 200),
        ({"IfMatch": '"other", {etag}'}, 200),
        ({"IfMatch": '"other"'}, 412),
        ({"IfNoneMatch": "{etag}"}, 304),
        ({"IfNoneMatch": "*"}, 304),
        ({"IfNoneMatch": "W/{etag}"}, 304),
        ({"IfNoneMatch": '"other"'}, 200),
        ({"IfModifiedSince": BEFORE}, 200),
        ({"IfModifiedSince": SECOND}, 304),
        ({"IfModifiedSince": AFTER}, 200),
        ({"IfUnmodifiedSince": BEFORE}, 412),
        ({"IfUnmodifiedSince": SECOND}, 200),
        ({"IfUnmodifiedSince": AFTER}, 200),
        ({"IfMatch": "{etag}", "IfUnmodifiedSince": BEFORE}, 200),
        ({"IfNoneMatch": '"other"', "IfModifiedSince": AFTER}, 200),
        ({"IfNoneMatch": "{etag}", "IfModifiedSince": BEFORE}, 304),
        ({"IfMatch": '"other"', "IfNoneMatch": "{etag}"}, 412),
    ],
)
def test_conditions_have_the_precedence_of_s3(s3: Front, digits: str, conditions: dict[str, Any], status: int) -> None:
    demands = {
        name: value.replace("{etag}", digits) if isinstance(value, str) else value for name, value in conditions.items()
    }
    for operation in ("GetObject", "HeadObject"):
        if status == 200:
            assert s3(operation, Bucket="data", Key="digits", **demands)["ETag"] == digits
            continue
        with pytest.raises(Fault) as caught:
            s3(operation, Bucket="data", Key="digits", **demands)
        assert caught.value.status == status


def test_a_304_tells_the_etag_and_the_time(s3: Front, digits: str) -> None:
    with pytest.raises(Fault) as caught:
        s3.get("data", "digits", IfNoneMatch=digits)
    assert caught.value.headers == {"etag": digits, "last-modified": "Wed, 01 Jul 2026 12:00:00 GMT"}


def test_if_none_match_keeps_the_existing_object(s3: Front) -> None:
    s3.put("data", "key", b"first", IfNoneMatch="*")
    with pytest.raises(Fault) as caught:
        s3.put("data", "key", b"second", IfNoneMatch="*")
    assert (caught.value.code, caught.value.status) == ("PreconditionFailed", 412)
    assert caught.value.members == {"Condition": "If-None-Match"}
    assert s3.get("data", "key")["Body"] == b"first"


def test_if_match_replaces_only_the_named_version(s3: Front) -> None:
    etag = s3.put("data", "key", b"first")["ETag"]
    s3.put("data", "key", b"second", IfMatch=etag)
    with pytest.raises(Fault) as caught:
        s3.put("data", "key", b"third", IfMatch=etag)
    assert caught.value.members == {"Condition": "If-Match"}
    assert s3.get("data", "key")["Body"] == b"second"


def test_if_match_on_a_missing_key_is_not_found(s3: Front) -> None:
    assert refused_put(s3, IfMatch='"abc"').code == "NoSuchKey"


@pytest.mark.parametrize(
    "conditions", [{"IfNoneMatch": '"abc"'}, {"IfMatch": "*"}, {"IfMatch": '"abc"', "IfNoneMatch": "*"}]
)
def test_conditions_that_s3_does_not_know_for_writes_are_refused_put(s3: Front, conditions: dict[str, str]) -> None:
    fault = refused_put(s3, **conditions)
    assert (fault.code, fault.status) == ("NotImplemented", 501)
    named = ",".join(name.replace("If", "If-").replace("NoneM", "None-M") for name in conditions)
    assert fault.members["Header"] == named


def test_a_copy_passes_over_a_time_to_come(s3: Front, digits: str) -> None:
    copy = {"Bucket": "data", "Key": "copy", "CopySource": "data/digits"}
    s3("CopyObject", **copy, CopySourceIfModifiedSince=AFTER)
    with pytest.raises(Fault) as caught:
        s3("CopyObject", **copy, CopySourceIfModifiedSince=SECOND)
    assert caught.value.members == {"Condition": "x-amz-copy-source-If-Modified-Since"}
    assert s3.get("data", "copy")["ETag"] == digits
