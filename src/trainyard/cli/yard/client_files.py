"""The configuration files that make AWS clients and the sagemaker SDK use the yard.

boto3 and the aws CLI need only the default profile. The sagemaker SDK always takes the address of STS from botocore's
list of endpoints, whatever is configured; a list under ~/.aws/models overrides that of botocore.
"""

import gzip
import importlib.util
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainyard._sdk.connection import ClientTarget
from trainyard.cli.terminal.failure import Failure

_SECTION = re.compile(r"\s*\[\s*(?:profile\s+)?([^\]]+?)\s*\]")


@dataclass(frozen=True, slots=True)
class ClientFile:
    """A file to write. `compose` returns its new text for the original text, which is "" if there was no file."""

    path: Path
    compose: Callable[[str], str]


def client_files(target: ClientTarget, *, user_home: Path, environment: Mapping[str, str]) -> list[ClientFile]:
    """Return the files to write, with the paths where the clients of this user look for them."""
    aws = user_home / ".aws"
    config_home = Path(environment.get("XDG_CONFIG_HOME") or user_home / ".config")
    return [
        ClientFile(_path(environment, "AWS_CONFIG_FILE", aws / "config"), lambda text: _config(text, target)),
        ClientFile(
            _path(environment, "AWS_SHARED_CREDENTIALS_FILE", aws / "credentials"),
            lambda text: _credentials(text, target),
        ),
        ClientFile(aws / "models" / "endpoints.json", lambda _: endpoints(target.https)),
        ClientFile(config_home / "sagemaker" / "config.yaml", lambda _: _sagemaker_config(target)),
    ]


def with_default_profile(text: str, values: Mapping[str, str]) -> str:
    """Return the text of an AWS configuration file with a new default profile and all other profiles unchanged."""
    section = ["[default]", *(f"{name} = {value}" for name, value in values.items()), ""]
    kept: list[str] = []
    inside, position = False, None
    # Split only at "\n"; botocore does not treat other characters as line ends.
    for line in text.split("\n") if text else []:
        header = _SECTION.match(line)
        if header:
            inside = header[1] == "default"
            position = len(kept) if inside and position is None else position
        if not inside:
            kept.append(line)
    if position is None:
        kept += [""] if kept and kept[-1].strip() else []
        position = len(kept)
    kept[position:position] = section
    return "\n".join(kept).rstrip("\n") + "\n"


def endpoints(https: str) -> str:
    """Return botocore's list of endpoints, with the yard as the endpoint of STS in every region."""
    document = _botocore_endpoints()
    hostname = urlsplit(https).netloc
    for partition in document["partitions"]:
        _redirect(partition, "sts", hostname)
    return _text(document)


def default_endpoints() -> str:
    """Return botocore's list of endpoints in the format of `endpoints`."""
    return _text(_botocore_endpoints())


def sts_endpoints(text: str) -> str:
    """Return the part of a list that differs between `endpoints` and `default_endpoints`."""
    partitions = json.loads(text)["partitions"]
    return _text({partition["partition"]: {"sts": partition["services"].get("sts")} for partition in partitions})


def _botocore_endpoints() -> dict[str, Any]:
    """Read the list of endpoints of the installed botocore, without importing botocore."""
    spec = importlib.util.find_spec("botocore")
    if spec is None or spec.origin is None:
        raise Failure("botocore is not installed.", next_step="pip install --force-reinstall trainyard")
    data = Path(spec.origin).parent / "data"
    packed = data / "endpoints.json.gz"
    text = gzip.decompress(packed.read_bytes()) if packed.exists() else (data / "endpoints.json").read_bytes()
    document: dict[str, Any] = json.loads(text)
    return document


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def _path(environment: Mapping[str, str], variable: str, default: Path) -> Path:
    configured = environment.get(variable)
    return Path(os.path.expandvars(configured)).expanduser() if configured else default


def _config(text: str, target: ClientTarget) -> str:
    values = {"region": target.region, "endpoint_url": target.http or target.https}
    values |= {"ca_bundle": str(target.ca_bundle)} if target.ca_bundle else {}
    return with_default_profile(text, values)


def _credentials(text: str, target: ClientTarget) -> str:
    values = {
        "aws_access_key_id": target.keys.access_key_id,
        "aws_secret_access_key": target.keys.secret_access_key,
    }
    return with_default_profile(text, values)


def _redirect(partition: dict[str, Any], service: str, hostname: str) -> None:
    entry = partition["services"].setdefault(service, {})
    known = entry.setdefault("endpoints", {})
    for region in sorted({*partition["regions"], *known}):
        scope = known.get(region, {}).get("credentialScope")
        known[region] = {"hostname": hostname} | ({"credentialScope": scope} if scope else {})


def _sagemaker_config(target: ClientTarget) -> str:
    """Return a configuration that turns telemetry to AWS off and sets the default role of jobs."""
    role = target.role
    return f"""\
SchemaVersion: '1.0'
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
  TrainingJob:
    RoleArn: '{role}'
  ProcessingJob:
    RoleArn: '{role}'
  Model:
    ExecutionRoleArn: '{role}'
"""
