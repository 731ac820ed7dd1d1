"""How instances on other machines reach a yard."""

import ipaddress
import socket
from urllib.parse import urlsplit

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.settings import ServerSettings

_ELSEWHERE = ("192.0.2.1", 9)  # an address that nobody has; what leads there leads to others


def advertised_address(settings: ServerSettings, bound: str) -> str:
    """The setting `advertise`, or else the address at which the yard listens, as others know it."""
    if settings.advertise:
        return settings.advertise.rstrip("/")
    address = urlsplit(bound)
    if not ipaddress.ip_address(address.hostname or "").is_unspecified:
        return bound
    return f"http://{_own_address()}:{address.port}"


def advertised_host(settings: ServerSettings) -> str:
    """The host in the setting `advertise`, empty where it is not set; InvalidRequest when it is no address."""
    if not settings.advertise:
        return ""
    address = urlsplit(settings.advertise)
    if address.scheme != "http" or not address.hostname or address.path.strip("/") or address.query:
        raise InvalidRequest(
            f'The setting `advertise` is "{settings.advertise}", which is no address of a yard; write one like '
            "http://10.0.0.1:4780."
        )
    return address.hostname


def why_out_of_reach(settings: ServerSettings) -> str:
    """Why other machines do not reach this yard, as a clause; empty when they may."""
    host = advertised_host(settings) or settings.host
    if host != "localhost" and not _is_loopback(host):
        return ""
    if settings.advertise:
        return f"it advertises {settings.advertise}, which means every machine itself"
    return f"it listens on {host} only"


def is_of_this_machine(address: str) -> bool:
    """Whether an address of a machine is one of our own."""
    if not address:
        return True
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which means what the network says
        return False


def _own_address() -> str:
    """The one by which this machine speaks to others; nothing is sent to find it out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:  # no network but our own
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address
