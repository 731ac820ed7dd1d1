"""Tells the pip and uv of a program which package indexes the yard uses, as settings of the system.

So a program, its environment variables and its own settings override them, as they do on any machine. Passwords stay in
the agent, and what the program downloads is kept for the user's next job: see index_proxy.py.
"""

import configparser
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from trainyard.instance.agent.program.index_proxy import IndexProxy, has_secrets, has_user
from trainyard.instance.sandbox.contract import SETTINGS
from trainyard.link.contract import InstanceSpec
from trainyard.link.package_downloads import PackageDownloads

_SYSTEM_PIP, _SYSTEM_UV = Path("/etc/pip.conf"), Path("/etc/uv/uv.toml")
_PYPI = "https://pypi.org/simple"
_SECTIONS = ("global", "install")
# Options of pip that say where packages are, and how to get there. Others belong to whoever runs pip.
_LOCATIONS = ("index-url", "extra-index-url", "find-links")
_OPTIONS = (*_LOCATIONS, "no-index", "trusted-host", "cert", "timeout", "default-timeout", "retries")
_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_UV_LOCATIONS = {
    "index-url": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "extra-index-url": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
    "find-links": ("UV_FIND_LINKS",),
}
_TRUE = ("1", "true", "yes", "on")
_NAME = re.compile(r"^[\w.-]+=(?=\w+://)")


class PackageIndexes:
    """The indexes for the program of one instance, from the settings of the machine and the variables of the yard."""

    def __init__(self, spec: InstanceSpec, variables: Mapping[str, str]) -> None:
        self._spec = spec
        self._variables = variables

    @contextmanager
    def settings(self) -> Iterator[Mapping[str, str]]:
        """Yield the files of settings, by path. The addresses in them are served as long as the block is open."""
        if self._spec.is_isolated:
            yield {}
            return
        pip = _read_settings(_SYSTEM_PIP)
        certificate = next((self._variables[name] for name in _CERTIFICATES if self._variables.get(name)), None)
        downloads = PackageDownloads(Path(self._spec.environments)) if self._spec.environments else None
        with IndexProxy(
            certificate or _option(pip, "cert"),
            downloads=downloads,
            limit_bytes=self._spec.environments_limit_bytes,
        ) as proxy:
            yield self._files(pip, proxy)

    def _files(self, pip: configparser.RawConfigParser, proxy: IndexProxy) -> Mapping[str, str]:
        for name in _OPTIONS:
            value = self._variables.get(f"PIP_{name.replace('-', '_').upper()}")
            if value:
                _set_option(pip, name, value)
        if not _is_true(_option(pip, "no-index")) and not _option(pip, "index-url"):
            _set_option(pip, "index-url", _PYPI)
        uv = self._uv_settings(pip, proxy)
        for section in pip.sections():
            for name, value in pip.items(section):
                pip.set(section, name, _public(name, value, proxy))
        files = {str(_SYSTEM_PIP) if _SYSTEM_PIP.exists() else f"{SETTINGS}/pip/pip.conf": _text(pip)}
        # The one of the system is what the machine's owner wants.
        return files if _SYSTEM_UV.exists() else {**files, f"{SETTINGS}/uv/uv.toml": uv}

    def _uv_settings(self, pip: configparser.RawConfigParser, proxy: IndexProxy) -> str:
        own = {
            option: " ".join(filter(None, (self._variables.get(name) for name in names)))
            for option, names in _UV_LOCATIONS.items()
        }
        if any(own.values()):
            return _uv_text({option: _words(value, proxy) for option, value in own.items()})
        found = {option: _words(_option(pip, option) or "", proxy) for option in _LOCATIONS}
        hosts = (_option(pip, "trusted-host") or "").split()
        is_offline = _is_true(_option(pip, "no-index"))
        # pip takes the best version that any of its indexes has.
        return _uv_text({**found, "allow-insecure-host": hosts}, no_index=is_offline, strategy="unsafe-best-match")


def _read_settings(file: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, "utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        # pip complains about it itself.
        return configparser.RawConfigParser()
    return parser


def _option(pip: configparser.RawConfigParser, name: str) -> str | None:
    return next((pip.get(section, name) for section in reversed(_SECTIONS) if pip.has_option(section, name)), None)


def _set_option(pip: configparser.RawConfigParser, name: str, value: str) -> None:
    for section in pip.sections():
        pip.remove_option(section, name)
    if not pip.has_section(_SECTIONS[0]):
        pip.add_section(_SECTIONS[0])
    pip.set(_SECTIONS[0], name, value)


def _public(name: str, value: str, proxy: IndexProxy) -> str:
    """Return the value without secrets."""
    if name in _LOCATIONS:
        return "\n".join(_words(value, proxy))
    return "" if has_secrets({name.replace("-", "_").upper(): value}) or has_user(value) else value


def _words(value: str, proxy: IndexProxy) -> Sequence[str]:
    return [proxy.index_url(_NAME.sub("", word)) for word in value.split()]


def _text(pip: configparser.RawConfigParser) -> str:
    text = io.StringIO()
    pip.write(text)
    return text.getvalue()


def _uv_text(options: Mapping[str, Sequence[str]], *, no_index: bool = False, strategy: str = "") -> str:
    lines = [f'index-strategy = "{strategy}"'] if strategy else []
    lines += ["no-index = true"] if no_index else []
    for name, values in options.items():
        if values:
            lines.append(f"{name} = {json.dumps(values[0] if name == 'index-url' else list(values))}")
    return "".join(f"{line}\n" for line in lines)


def _is_true(value: str | None) -> bool:
    return (value or "").strip().lower() in _TRUE
