"""Variables of the shell that override what `trainyard connect` writes, and what to do about each."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard._sdk.connection import PROXIES, ClientTarget, client_environment
from trainyard.foundation.files import make_folder, replace_file

_SDK_CONFIG = "SAGEMAKER_USER_CONFIG_OVERRIDE"


@dataclass(frozen=True, slots=True)
class Override:
    """A variable that overrides the files: the consequence for clients, and the shell command that ends it."""

    name: str
    consequence: str
    remedy: str


def find_overrides(target: ClientTarget, current: Mapping[str, str], *, bundles: Path) -> Iterator[Override]:
    """Yield the variables of an environment that override the files for a yard.

    If AWS_CA_BUNDLE names other authorities than that of the yard, a bundle with all of them is written to the folder
    `bundles`.
    """
    ours = client_environment(target, current=current)
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        value = current.get(name)
        if value and value not in (ours.variables[name], target.https):
            yield Override(name, _CONSEQUENCES[name], f"unset {name}")
    if target.ca_bundle is not None and (bundle := current.get("AWS_CA_BUNDLE")):
        yield from _bundle_override(Path(bundle), target.ca_bundle, bundles=bundles)
    for name in sorted(set(ours.unset) & current.keys()):
        if current[name]:
            yield Override(name, _CONSEQUENCES.get(name, _OTHERS), f"unset {name}")
    if (exceptions := ours.variables.get("NO_PROXY")) is not None:
        yield from _proxy_override(exceptions, current)
    if current.get(_SDK_CONFIG):
        yield Override(_SDK_CONFIG, _CONSEQUENCES[_SDK_CONFIG], f"unset {_SDK_CONFIG}")


_OTHERS = "AWS clients use it instead of the files."
_CONSEQUENCES: Mapping[str, str] = {
    "AWS_ENDPOINT_URL": "AWS clients call that address instead of the yard.",
    "AWS_ACCESS_KEY_ID": "AWS clients sign with that key, which the yard may not know.",
    "AWS_SECRET_ACCESS_KEY": "AWS clients sign with that key, which the yard may not know.",
    "AWS_REGION": "AWS clients use that region, so the default bucket has another name.",
    "AWS_DEFAULT_REGION": "AWS clients use that region, so the default bucket has another name.",
    "AWS_PROFILE": "AWS clients use that profile instead of the default one, which is the yard's.",
    "AWS_DEFAULT_PROFILE": "AWS clients use that profile instead of the default one, which is the yard's.",
    "AWS_SESSION_TOKEN": "AWS clients send that token, which belongs to other keys.",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "AWS clients call Amazon instead of the yard.",
    _SDK_CONFIG: "The sagemaker SDK reads its defaults there, and so does not find the role of the yard.",
}


def _bundle_override(named: Path, ours: Path, *, bundles: Path) -> Iterator[Override]:
    try:
        other, own = named.read_bytes(), ours.read_bytes()
    except OSError:
        yield Override("AWS_CA_BUNDLE", f"AWS clients cannot read {named}.", f"export AWS_CA_BUNDLE={_quote(ours)}")
        return
    # The bundle of a yard begins with its own authority.
    authority = own[: own.index(_CERTIFICATE_END) + len(_CERTIFICATE_END)]
    if authority in other:
        return
    joint = bundles / "joint-bundle.pem"
    make_folder(bundles, parents=True)
    replace_file(joint, authority + b"\n" + other)
    yield Override(
        "AWS_CA_BUNDLE",
        "AWS clients trust only the authorities in that file, and refuse the certificate of the yard; "
        f"{joint} has those and the yard's.",
        f"export AWS_CA_BUNDLE={_quote(joint)}",
    )


def _proxy_override(exceptions: str, current: Mapping[str, str]) -> Iterator[Override]:
    """Yield the proxy if the address of the yard is not among its exceptions, and so cannot be reached."""
    known = current.get("no_proxy") or current.get("NO_PROXY") or ""
    if {name.strip() for name in known.split(",")} >= set(exceptions.split(",")):
        return
    name = next(name for name in sorted(current) if name.lower() in PROXIES and current[name])
    yield Override(
        name,
        "AWS clients send requests for the yard to that proxy.",
        f"export no_proxy={shlex.quote(exceptions)} NO_PROXY={shlex.quote(exceptions)}",
    )


_CERTIFICATE_END = b"-----END CERTIFICATE-----"


def _quote(path: Path) -> str:
    return shlex.quote(str(path))
