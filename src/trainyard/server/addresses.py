"""The address at which instances on other machines reach a yard."""

import ipaddress
import socket
from urllib.parse import urlsplit

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.settings import ServerSettings

# A documentation address that no machine has. The route to it is the route to other machines.
_REMOTE_ADDRESS = ("192.0.2.1", 9)


def advertised_address(settings: ServerSettings, bound: str) -> str:
    """Return the setting `advertise`, or else the address at which the yard listens, as other machines see it."""
    if settings.advertise:
        return settings.advertise.rstrip("/")
    address = urlsplit(bound)
    if not ipaddress.ip_address(address.hostname or "").is_unspecified:
        return bound
    return f"http://{_own_address()}:{address.port}"


def advertised_host(settings: ServerSettings) -> str:
    """Return the host in the setting `advertise`, or "" if it is not set. InvalidRequest when it is malformed."""
    if not settings.advertise:
        return ""
    address = urlsplit(settings.advertise)
    if address.scheme != "http" or not address.hostname or address.path.strip("/") or address.query:
        raise InvalidRequest(
            f'The setting `advertise` is "{settings.advertise}", which is not the address of a yard; write it like '
            "http://10.0.0.1:4780."
        )
    return address.hostname


def reachable_address(settings: ServerSettings, https_port: int) -> str:
    """Return the https address for clients on other machines, or "" if they cannot reach this yard."""
    if unreachable_reason(settings):
        return ""
    named = settings.hostnames.partition(",")[0].strip() or advertised_host(settings)
    host = named or (_own_address() if settings.host in ("0.0.0.0", "::") else settings.host)
    return f"https://[{host}]:{https_port}" if ":" in host else f"https://{host}:{https_port}"


def unreachable_reason(settings: ServerSettings) -> str:
    """Return why other machines cannot reach this yard, as a clause, or "" if they can."""
    host = advertised_host(settings) or settings.host
    if host != "localhost" and not _is_loopback(host):
        return ""
    if settings.advertise:
        return f"it advertises {settings.advertise}, which means the local machine on every machine"
    return f"it listens on {host} only"


def is_own_address(address: str) -> bool:
    """Whether an address belongs to this machine."""
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
    except ValueError:
        # A host name may resolve to anything.
        return False


def _own_address() -> str:
    """Return the address that this machine uses towards others. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_REMOTE_ADDRESS)
        except OSError:
            # There is no network.
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address
