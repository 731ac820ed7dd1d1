"""How users on other machines reach a yard: its address, and the fingerprint with which they recognize it."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from trainyard._sdk.connection import YardConnection
from trainyard._sdk.first_contact import fingerprint
from trainyard.cli.terminal.console import command_line
from trainyard.foundation.home import Home


def authority_fingerprint(home: Home) -> str:
    """Return the SHA-256 fingerprint of the yard's certificate authority."""
    return fingerprint(home.ca_file.read_bytes())


def login_lines(connection: YardConnection) -> Iterator[str]:
    """Yield what a user on another machine has to know, or why there is nothing to know."""
    runtime = connection.runtime
    if not runtime.reachable:
        https = urlsplit(runtime.https)
        yield f"Other machines cannot reach this yard, because it listens on {https.hostname} only. To open it to them:"
        down, up = (command_line(words, connection.home) for words in ("down", "up --detach --host 0.0.0.0"))
        yield f"  {down} && {up}"
        yield "By ssh, users reach it without that. On another machine, where Trainyard is installed:"
        yield f"  ssh -N -L {https.port}:{https.netloc} HOST      and, in another terminal:"
        yield f"  trainyard login https://127.0.0.1:{https.port}"
    else:
        yield "On another machine, where Trainyard is installed:"
        yield f"  trainyard login {runtime.reachable}"
    yield "It asks for the access key and the secret, and shows the fingerprint of the yard's certificate authority:"
    yield f"  {authority_fingerprint(connection.home)}"
