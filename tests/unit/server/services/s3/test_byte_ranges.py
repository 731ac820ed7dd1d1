import pytest

from tests.unit.server.services.s3.front import Front
from trainyard.wire.fault import Fault


@pytest.mark.parametrize(
    ("text", "wanted", "told"),
    [
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=3-", b"3456789", "bytes 3-9/10"),
        ("bytes=-4", b"6789", "bytes 6-9/10"),
        ("bytes=-40", b"0123456789", "bytes 0-9/10"),
        ("bytes=9-9", b"9", "bytes 9-9/10"),
        ("bytes=5-500", b"56789", "bytes 5-9/10"),
    ],
)
def test_a_range_is_a_piece(s3: Front, digits: str, text: str, wanted: bytes, told: str) -> None:
    got = s3.get("data", "digits", Range=text)
    assert (got["Body"], got["ContentLength"], got["ContentRange"]) == (wanted, len(wanted), told)
    head = s3("HeadObject", Bucket="data", Key="digits", Range=text)
    assert (head["ContentLength"], head["ContentRange"]) == (len(wanted), told)


@pytest.mark.parametrize("text", ["bytes=0-1,4-5", "bytes=5-2", "bytes=-", "lines=1-2", "bytes=a-b", "", "bytes=٣-٤"])
def test_anything_but_a_single_range_means_the_whole_object(s3: Front, digits: str, text: str) -> None:
    got = s3.get("data", "digits", Range=text)
    assert got["Body"] == b"0123456789"
    assert "ContentRange" not in got


@pytest.mark.parametrize("text", ["bytes=10-", "bytes=10-20", "bytes=-0"])
def test_a_range_beyond_the_end_cannot_be_satisfied(s3: Front, digits: str, text: str) -> None:
    with pytest.raises(Fault) as caught:
        s3.get("data", "digits", Range=text)
    assert (caught.value.code, caught.value.status) == ("InvalidRange", 416)
    assert caught.value.members == {"RangeRequested": text, "ActualObjectSize": "10"}
    assert caught.value.headers == {"content-range": "bytes */10"}


def test_an_empty_object_has_no_range(s3: Front) -> None:
    s3.put("data", "empty")
    for text in ("bytes=0-", "bytes=-5"):
        with pytest.raises(Fault) as caught:
            s3.get("data", "empty", Range=text)
        assert caught.value.code == "InvalidRange"


def test_an_object_put_whole_is_its_own_first_part(s3: Front, digits: str) -> None:
    got = s3.get("data", "digits", PartNumber=1)
    assert (got["Body"], got["ContentRange"]) == (b"0123456789", "bytes 0-9/10")
    assert "PartsCount" not in got
    with pytest.raises(Fault) as caught:
        s3.get("data", "digits", PartNumber=2)
    assert (caught.value.code, caught.value.status) == ("InvalidPartNumber", 416)


def test_a_range_and_a_part_number_exclude_each_other(s3: Front, digits: str) -> None:
    with pytest.raises(Fault) as caught:
        s3.get("data", "digits", PartNumber=1, Range="bytes=0-1")
    assert caught.value.code == "InvalidRequest"
