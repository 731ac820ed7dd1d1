"""How an installation reaches indexes that need a password."""

import base64
import contextlib
import http.client
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from tests.unit.instance.agent.private_index import PASSWORD, USER, PrivateIndex, private_index
from tests.unit.instance.agent.wheels import make_wheel
from trainyard.instance.agent.program.index_proxy import IndexProxy, has_secrets, hide_secrets


@pytest.fixture(params=["/packages/{name}", "../../../packages/{name}", "http://{address}/packages/{name}"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PrivateIndex]:
    with private_index([make_wheel(tmp_path, "yardtoy", "1.0")], link=request.param) as served:
        yield served


def fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        body: bytes = answer.read()
        return body


def status_of(url: str, *, method: str = "GET") -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, parts.path)
        return connection.getresponse().status


def test_a_page_and_what_it_links_come_without_the_password(index: PrivateIndex, tmp_path: Path) -> None:
    with IndexProxy() as proxy:
        told = hide_secrets({"PIP_INDEX_URL": index.url}, proxy)["PIP_INDEX_URL"]
        assert PASSWORD not in told
        page = fetch(f"{told}/yardtoy/")
        link = urljoin(f"{told}/yardtoy/", page.decode().partition('href="')[2].partition('"')[0])
        assert fetch(link) == (tmp_path / "yardtoy-1.0-py3-none-any.whl").read_bytes()
        assert PASSWORD.encode() not in page
    assert {status for _, _, status in index.asked} == {200}


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_pip_and_uv_find_packages_by_it(index: PrivateIndex, tmp_path: Path, tool: str) -> None:
    target = str(tmp_path / "installed")
    uv = str(Path(sys.executable).with_name("uv"))
    command = [sys.executable, "-m", "pip", "install"] if tool == "pip" else [uv, "pip", "install", "--no-cache"]
    with IndexProxy() as proxy:
        variables = hide_secrets({"PIP_INDEX_URL": index.url, "UV_DEFAULT_INDEX": index.url}, proxy)
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, **variables}
        subprocess.run([*command, "--no-deps", "--target", target, "yardtoy"], check=True, env=environment, cwd="/")
    assert (tmp_path / "installed" / "yardtoy.py").exists()
    assert 401 not in {status for _, _, status in index.asked}


def test_nothing_else_of_the_index_can_be_fetched_with_its_password(index: PrivateIndex) -> None:
    with IndexProxy() as proxy:
        told = proxy.index_url(index.url)
        local = told.removesuffix("/private/simple")
        hostile = (
            f"{local}/admin/users",
            f"{local}/private/simple/../../admin",
            f"{local}/private/simple/%2e%2e/%2e%2e/admin",
            f"{local}/packages/yardtoy-1.0-py3-none-any.whl",  # not linked by any page yet
            f"{local[:-2]}/1/private/simple/",
            f"{local[:-3]}x/0/private/simple/yardtoy/",
            f"http://{urlsplit(told).netloc}/",
            f"http://{urlsplit(told).netloc}/private/simple/",
        )
        assert [status_of(url) for url in hostile] == [404] * len(hostile)
        for method in ("POST", "PUT", "DELETE"):
            assert status_of(f"{told}/yardtoy/", method=method) == 501
    assert index.asked == []


def test_the_addresses_end_with_the_installation(index: PrivateIndex) -> None:
    with IndexProxy() as proxy:
        told = proxy.index_url(index.url)
    with pytest.raises(OSError, match="refused"):
        fetch(f"{told}/yardtoy/")


def test_the_errors_of_the_index_are_passed_on(tmp_path: Path) -> None:
    with private_index([]) as index, IndexProxy() as proxy:
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetch(f"{proxy.index_url(index.url)}/absent/")
        wrong = index.url.replace(PASSWORD, "wrong")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            fetch(f"{proxy.index_url(wrong)}/absent/")


def test_variables_that_hold_secrets_are_translated_or_withheld() -> None:
    variables = {
        "PIP_EXTRA_INDEX_URL": "https://a:b@one.example/simple https://two.example/simple",
        "UV_INDEX": "corp=https://a:b@one.example/simple",
        "UV_PUBLISH_TOKEN": "t",
        "UV_INDEX_CORP_PASSWORD": "p",
        "PIP_CLIENT_CERT": "/etc/key.pem",
        "PIP_CONSTRAINT": "https://a:b@one.example/constraints.txt",
        "PIP_TIMEOUT": "30",
        "https_proxy": "http://a:b@gateway.example:3128",
        "no_proxy": "intern.example",
    }
    with IndexProxy() as proxy:
        told = hide_secrets(variables, proxy)
    assert sorted(told) == ["NO_PROXY", "PIP_EXTRA_INDEX_URL", "PIP_TIMEOUT", "UV_INDEX", "https_proxy", "no_proxy"]
    first, second = told["PIP_EXTRA_INDEX_URL"].split()
    assert first.startswith("http://127.0.0.1:")
    assert second == "https://two.example/simple"
    assert told["UV_INDEX"].startswith("corp=http://127.0.0.1:")
    assert "@127.0.0.1:" in told["https_proxy"]
    assert told["no_proxy"] == "intern.example,127.0.0.1"
    assert not any("a:b" in value for value in told.values())
    assert has_secrets(variables)
    assert not has_secrets({"PIP_INDEX_URL": "https://two.example/simple", "PIP_TIMEOUT": "30", "http_proxy": "p:1"})


def test_a_proxy_with_a_password_is_used_without_revealing_it() -> None:
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            heard.append(connection.recv(4096))
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            connection.sendall(connection.recv(100).upper())

    with socket.create_server(("127.0.0.1", 0)) as gateway, IndexProxy() as proxy:
        thread = threading.Thread(target=serve, args=(gateway,))
        thread.start()
        told = urlsplit(proxy.proxy_url(f"http://{USER}:{PASSWORD}@127.0.0.1:{gateway.getsockname()[1]}"))
        assert PASSWORD not in told.netloc
        assert told.port is not None
        assert _tunnel(told.port, authorization=_basic("guess", "guess")) is None
        answer = _tunnel(told.port, authorization=_basic(told.username or "", told.password or ""))
        thread.join()
    assert answer == b"HELLO"
    assert b"CONNECT files.example:443" in heard[0]
    assert _basic(USER, PASSWORD).encode() in heard[0]


def _tunnel(port: int, *, authorization: str) -> bytes | None:
    """The answer through a tunnel; None when it is refused."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(
            f"CONNECT files.example:443 HTTP/1.1\r\nProxy-Authorization: {authorization}\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head and (data := connection.recv(4096)):
            head += data
        if b" 200 " not in head.partition(b"\r\n")[0]:
            return None
        connection.sendall(b"hello")
        return connection.recv(100)


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
