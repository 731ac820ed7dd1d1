"""The files that AWS clients and the sagemaker SDK read in a user's home, as they must be to use the yard.

boto3 and the aws CLI need the default profile only. The sagemaker SDK asks STS at an address that it takes from
botocore's list of endpoints, whatever is configured; a list under ~/.aws/models comes before botocore's own.
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

from trainyard.cli.failure import Failure
from trainyard.connection import Connection
from trainyard.foundation.arns import role_arn

_SECTION = re.compile(r"\s*\[\s*(?:profile\s+)?([^\]]+?)\s*\]")


@dataclass(frozen=True, slots=True)
class ClientFile:
    """One file to write. `compose` makes its new text from what the user had there, "" for nothing."""

    path: Path
    compose: Callable[[str], str]


def client_files(connection: Connection, *, user_home: Path, environment: Mapping[str, str]) -> list[ClientFile]:
    """Every file, at the place where this user's clients look for it."""
    aws = user_home / ".aws"
    config_home = Path(environment.get("XDG_CONFIG_HOME") or user_home / ".config")
    return [
        ClientFile(_place(environment, "AWS_CONFIG_FILE", aws / "config"), lambda text: _config(text, connection)),
        ClientFile(
            _place(environment, "AWS_SHARED_CREDENTIALS_FILE", aws / "credentials"),
            lambda text: _credentials(text, connection),
        ),
        ClientFile(aws / "models" / "endpoints.json", lambda _: endpoints(connection.runtime.https)),
        ClientFile(config_home / "sagemaker" / "config.yaml", lambda _: _sagemaker_config(connection)),
    ]


def with_default_profile(text: str, values: Mapping[str, str]) -> str:
    """The text of an AWS configuration file with its default profile replaced and all others left alone."""
    section = ["[default]", *(f"{name} = {value}" for name, value in values.items()), ""]
    kept: list[str] = []
    inside, position = False, None
    for line in text.split("\n") if text else []:  # any other ending of a line is a part of it
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
    """Botocore's list of endpoints, with that of STS in every region being the yard."""
    document = _botocore_endpoints()
    here = urlsplit(https).netloc
    for partition in document["partitions"]:
        _redirect(partition, "sts", here)
    return _text(document)


def usual_endpoints() -> str:
    """Botocore's list, laid out like that of `endpoints`."""
    return _text(_botocore_endpoints())


def sts_endpoints(text: str) -> str:
    """The part of a list that differs between `endpoints` and `usual_endpoints`."""
    partitions = json.loads(text)["partitions"]
    return _text({partition["partition"]: {"sts": partition["services"].get("sts")} for partition in partitions})


def _botocore_endpoints() -> dict[str, Any]:
    """The list as it came with botocore, read without importing that."""
    spec = importlib.util.find_spec("botocore")
    if spec is None or spec.origin is None:
        raise Failure(
            "botocore is not installed beside Trainyard.", next_step="pip install --force-reinstall trainyard"
        )
    data = Path(spec.origin).parent / "data"
    packed = data / "endpoints.json.gz"
    text = gzip.decompress(packed.read_bytes()) if packed.exists() else (data / "endpoints.json").read_bytes()
    document: dict[str, Any] = json.loads(text)
    return document


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def _place(environment: Mapping[str, str], variable: str, usual: Path) -> Path:
    chosen = environment.get(variable)
    return Path(os.path.expandvars(chosen)).expanduser() if chosen else usual


def _config(text: str, connection: Connection) -> str:
    values = {
        "region": connection.credentials.region,
        "endpoint_url": connection.runtime.http,
        "ca_bundle": str(connection.home.ca_bundle),
    }
    return with_default_profile(text, values)


def _credentials(text: str, connection: Connection) -> str:
    values = {
        "aws_access_key_id": connection.credentials.access_key_id,
        "aws_secret_access_key": connection.credentials.secret_access_key,
    }
    return with_default_profile(text, values)


def _redirect(partition: dict[str, Any], service: str, hostname: str) -> None:
    entry = partition["services"].setdefault(service, {})
    known = entry.setdefault("endpoints", {})
    for region in sorted({*partition["regions"], *known}):
        scope = known.get(region, {}).get("credentialScope")
        known[region] = {"hostname": hostname} | ({"credentialScope": scope} if scope else {})


def _sagemaker_config(connection: Connection) -> str:
    """The SDK sends usage figures to AWS unless told not to, and takes the role of a job from here when given none."""
    role = role_arn(connection.credentials.account, connection.credentials.role)
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
