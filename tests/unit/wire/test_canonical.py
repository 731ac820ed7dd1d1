import pytest

from trainyard.wire.canonical import canonical_request
from trainyard.wire.http import Headers, HttpRequest


def lines(path: str = "/", query: str = "", *, headers: dict[str, str] | None = None, is_s3: bool = True) -> list[str]:
    fields = Headers((headers or {}).items())
    request = HttpRequest("GET", path, query, fields)
    return canonical_request(request, list(fields), payload_hash="HASH", signs_raw_path=is_s3).split("\n")


def test_the_parts_are_in_their_order() -> None:
    assert lines("/a", "b=c", headers={"host": "h", "x-amz-date": "d"}) == [
        "GET",
        "/a",
        "b=c",
        "host:h",
        "x-amz-date:d",
        "",
        "host;x-amz-date",
        "HASH",
    ]


@pytest.mark.parametrize(
    ("sent", "s3", "others"),
    [
        ("", "/", "/"),
        ("/a/b", "/a/b", "/a/b"),
        ("/a//b/./../c", "/a//b/./../c", "/a/c"),
        ("/..", "/..", "/"),
        ("/a/b/c/../d", "/a/b/c/../d", "/a/b/d"),
        ("/a/b/c/../../d", "/a/b/c/../../d", "/a/d"),
        ("/a/", "/a/", "/a/"),
        ("/a%20b", "/a%20b", "/a%2520b"),
        ("/a%2fb", "/a%2Fb", "/a%252fb"),
        ("/(a)+~", "/%28a%29%2B~", "/%28a%29%2B~"),
        ("/é".encode().decode("latin-1"), "/%C3%A9", "/%C3%A9"),
    ],
)
def test_a_path_has_one_spelling_for_s3_and_one_for_the_others(sent: str, s3: str, others: str) -> None:
    assert lines(sent)[1] == s3
    assert lines(sent, is_s3=False)[1] == others


@pytest.mark.parametrize(
    ("sent", "signed"),
    [
        ("b=2&a=1", "a=1&b=2"),
        ("a=2&a=1&a", "a=&a=1&a=2"),
        ("a-b=1&a=2", "a=2&a-b=1"),
        ("prefix=a/b c", "prefix=a%2Fb%20c"),
        ("prefix=a%2fb+c", "prefix=a%2Fb%20c"),
        ("k=%ff", "k=%FF"),
        ("k=a%3Db=c", "k=a%3Db%3Dc"),
        ("&&a=1&", "a=1"),
        ("a=1&X-Amz-Signature=0&X-Amz-Date=d", "X-Amz-Date=d&a=1"),
    ],
)
def test_a_query_is_sorted_and_spelled_one_way(sent: str, signed: str) -> None:
    assert lines(query=sent)[2] == signed


@pytest.mark.parametrize(
    ("sent", "signed"), [("  a  b\t c ", "a b c"), ("a", "a"), ("", ""), ("voilà", "voilà"), ("à  à", "à à")]
)
def test_only_blanks_are_trimmed_from_a_header(sent: str, signed: str) -> None:
    def as_received(text: str) -> str:
        return text.encode().decode("latin-1")

    assert lines(headers={"x-amz-meta": as_received(sent)})[3] == f"x-amz-meta:{as_received(signed)}"
