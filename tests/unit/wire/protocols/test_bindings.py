import pytest

from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.models import Models
from trainyard.wire.protocols.bindings import BadParameter, request_bindings, response_bindings


def test_members_are_found_in_path_query_and_headers(models: Models) -> None:
    bindings = request_bindings(models.service("s3").operation_model("GetObjectAttributes"))
    headers = Headers([("x-amz-max-parts", "5"), ("x-amz-object-attributes", "ETag, Checksum"), ("other", "1")])
    request = HttpRequest("GET", "/b/k", "attributes&versionId=a+b", headers)
    assert bindings.read(request, {"Bucket": "b", "Key": "k"}) == {
        "Bucket": "b",
        "Key": "k",
        "VersionId": "a b",
        "MaxParts": 5,
        "ObjectAttributes": ["ETag", "Checksum"],
    }


def test_headers_of_a_prefix_are_a_map_of_what_follows_it(models: Models) -> None:
    bindings = request_bindings(models.service("s3").operation_model("PutObject"))
    headers = Headers([("X-Amz-Meta-Kind", "x"), ("x-amz-meta-", "nameless"), ("x-amz-metaphor", "no")])
    shape = bindings.read(HttpRequest("PUT", "/b/k", "", headers), {"Bucket": "b", "Key": "k"})
    assert shape["Metadata"] == {"kind": "x", "": "nameless"}


def test_a_parameter_of_the_wrong_type_is_named(models: Models) -> None:
    bindings = request_bindings(models.service("s3").operation_model("ListObjectsV2"))
    request = HttpRequest("GET", "/b", "list-type=2&max-keys=many", Headers())
    with pytest.raises(BadParameter) as caught:
        bindings.read(request, {"Bucket": "b"})
    assert (caught.value.name, caught.value.value, caught.value.type_name) == ("max-keys", "many", "integer")


def test_a_parameter_that_is_given_twice_is_refused_because_their_order_is_not_signed(models: Models) -> None:
    bindings = request_bindings(models.service("s3").operation_model("GetObject"))
    request = HttpRequest("GET", "/b/k", "versionId=a&%76ersionId=b", Headers())
    with pytest.raises(BadParameter, match="given once"):
        bindings.read(request, {"Bucket": "b", "Key": "k"})


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("plain", "plain"),
        ("a\r\nSet-Cookie: b", "a  Set-Cookie: b"),
        ("bell\x07, escape\x1b, delete\x7f", "bell , escape , delete "),
        ("tab\there", "tab\there"),
        ("caf\xe9", "caf\xe9"),
        ("五", "五".encode().decode("latin-1")),
        ("五\n", "五 ".encode().decode("latin-1")),
    ],
)
def test_a_header_value_stays_within_its_field(models: Models, value: str, field: str) -> None:
    bindings = response_bindings(models.service("s3").operation_model("GetObject"))
    assert bindings.write({"ContentDisposition": value}) == [("Content-Disposition", field)]
    assert bindings.write({"Metadata": {"k": value}}) == [("x-amz-meta-k", field)]
    field.encode("latin-1")


def test_a_member_that_is_none_has_no_header(models: Models) -> None:
    bindings = response_bindings(models.service("s3").operation_model("GetObject"))
    assert bindings.write({"ETag": None, "ContentLength": 0, "DeleteMarker": False}) == [
        ("Content-Length", "0"),
        ("x-amz-delete-marker", "false"),
    ]
