"""In what training jobs differ: outcome, metrics, hyperparameters, code, packages, data, environment and instances.

The facts come from descriptions of jobs, in the form of the API, from the archives of their code and from listings of
their inputs, which the callers read.
"""

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainyard.foundation.input_trees import digest_of_tree, trees_named_in

# Larger code and longer lists of inputs are compared by their location only.
MAX_CODE_BYTES = 64 * 1024 * 1024
MAX_INPUT_OBJECTS = 10_000
# A longer file is only compared, not shown.
MAX_TEXT_BYTES = 256 * 1024
# Where data is located is of interest only if its content is unknown; its location then stands for it.
LOCATION = "data location"

_DIGEST_LENGTH = 12
_TOOLKIT_PREFIX = "sagemaker_"
_REQUIREMENTS = "requirements.txt"
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*(?P<version>.*)")

Description = Mapping[str, Any]
FactKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A file of a job's code. Without its content it can only be compared."""

    digest: str
    content: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, content: bytes) -> "CodeFile":
        return cls(short_digest(hashlib.sha256(content).hexdigest()), content[: MAX_TEXT_BYTES + 1])


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is compared of a job: values by kind and name, such as `("metric", "loss")`, and the files of its code."""

    name: str
    values: Mapping[FactKey, str]
    code: Mapping[str, CodeFile] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ComparedFact:
    """One fact of several jobs, in their order. A value is None if the job has none."""

    kind: str
    name: str
    values: Sequence[str | None]

    @property
    def is_same(self) -> bool:
        return len(set(self.values)) == 1


@dataclass(frozen=True, slots=True)
class DataObject:
    """An object of a listing, without its content."""

    key: str
    size: int
    etag: str


def compare_facts(jobs: Sequence[JobFacts]) -> list[ComparedFact]:
    """Return all facts that any of the jobs has, in the order of the first job that has them, kind by kind."""
    keys = list(dict.fromkeys(key for job in jobs for key in job.values))
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(kind for kind, _ in keys))}
    keys.sort(key=lambda key: kinds[key[0]])
    return [ComparedFact(kind, name, [job.values.get((kind, name)) for job in jobs]) for kind, name in keys]


def diff_code(first: JobFacts, second: JobFacts) -> Iterator[str]:
    """Yield a unified diff of the code of two jobs. Of files that are no text, or long, only the names are shown."""
    for name in sorted(first.code.keys() | second.code.keys()):
        before, after = first.code.get(name), second.code.get(name)
        if before is not None and after is not None and before.digest == after.digest:
            continue
        old, new = _lines(before), _lines(after)
        if old is None or new is None:
            yield f"Binary files {first.name}/{name} and {second.name}/{name} differ"
            continue
        yield from difflib.unified_diff(old, new, f"{first.name}/{name}", f"{second.name}/{name}", lineterm="")


def facts_of_job(
    description: Description, code: Mapping[str, CodeFile], listings: Mapping[str, Iterable[DataObject] | None]
) -> JobFacts:
    """Return the facts of a job. `listings` has the objects at each of `listed_locations`, or None if unknown."""
    values = dict(_description_facts(description))
    values |= {("code", name): file.digest for name, file in code.items()}
    values |= dict(_packages(code))
    values |= dict(_data(description, listings))
    return JobFacts(description["TrainingJobName"], values, code)


def code_location(description: Description) -> str | None:
    """Return the location of a job's code: a hyperparameter has it, or a channel for jobs without a network."""
    given = _value(description.get("HyperParameters", {}).get("sagemaker_submit_directory", "null"))
    if isinstance(given, str) and given.startswith("s3://"):
        return given
    for channel in description.get("InputDataConfig", ()) if given else ():
        if channel["ChannelName"] == "code":
            uri: str | None = channel["DataSource"].get("S3DataSource", {}).get("S3Uri")
            return uri
    return None


def listed_locations(description: Description) -> list[str]:
    """Return the locations whose objects must be listed to know their content.

    A local folder that was uploaded never changes, and its digest is in its location.
    """
    uris = [channel["DataSource"].get("S3DataSource", {}).get("S3Uri") for channel in _channels(description)]
    return [uri for uri in uris if uri and not trees_named_in(uri)]


def short_digest(digest: str) -> str:
    return digest[:_DIGEST_LENGTH]


def _description_facts(description: Description) -> Iterator[tuple[FactKey, str]]:
    """Yield what the description says, most interesting first."""
    yield ("job", "status"), description["TrainingJobStatus"]
    if (seconds := description.get("TrainingTimeInSeconds")) is not None:
        yield ("job", "training seconds"), str(seconds)
    for metric in description.get("FinalMetricDataList", ()):
        yield ("metric", metric["MetricName"]), f"{metric['Value']:g}"
    values = description.get("HyperParameters", {})
    for name, text in sorted(values.items()):
        if not name.startswith(_TOOLKIT_PREFIX):
            yield ("parameter", name), str(_value(text))
    if "sagemaker_program" in values:
        yield ("code", "script"), str(_value(values["sagemaker_program"]))
    algorithm = description["AlgorithmSpecification"]
    for title, member in (
        ("image", "TrainingImage"),
        ("algorithm", "AlgorithmName"),
        ("input mode", "TrainingInputMode"),
    ):
        if member in algorithm:
            yield ("environment", title), algorithm[member]
    for member in ("ContainerEntrypoint", "ContainerArguments"):
        if member in algorithm:
            yield ("environment", member), " ".join(algorithm[member])
    for name, text in sorted(description.get("Environment", {}).items()):
        yield ("environment", name), text
    yield from _resources(description)


def _resources(description: Description) -> Iterator[tuple[FactKey, str]]:
    resources = description["ResourceConfig"]
    groups = resources.get("InstanceGroups") or [resources]
    kinds = [f"{group.get('InstanceCount', 1)} x {group.get('InstanceType', '')}" for group in groups]
    yield ("instances", "type"), ", ".join(kinds)
    yield ("instances", "spot"), "yes" if description.get("EnableManagedSpotTraining") else "no"
    yield ("instances", "network"), "isolated" if description.get("EnableNetworkIsolation") else "of the machine"
    if (limit := description.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")) is not None:
        yield ("instances", "time limit"), f"{limit} s"


def _packages(code: Mapping[str, CodeFile]) -> Iterator[tuple[FactKey, str]]:
    """Yield the packages that the code asks for, by their names as the index knows them."""
    for line in _lines(code.get(_REQUIREMENTS)) or ():
        text = line.partition("#")[0].strip()
        found = _REQUIREMENT.fullmatch(text)
        if found:
            name, version = re.sub(r"[-_.]+", "-", found["name"]).lower(), "".join(found["version"].split())
            yield ("package", name), version or "any version"
        elif text:
            yield ("package", text), "yes"


def _data(
    description: Description, listings: Mapping[str, Iterable[DataObject] | None]
) -> Iterator[tuple[FactKey, str]]:
    """Yield the content of each channel, as it is now, and its location."""
    for channel in _channels(description):
        source = channel["DataSource"]
        if "S3DataSource" not in source:
            yield ("data", channel["ChannelName"]), json.dumps(source.get("FileSystemDataSource", {}), sort_keys=True)
            continue
        uri = source["S3DataSource"]["S3Uri"]
        trees = trees_named_in(uri)
        digest = digest_of_tree(next(iter(trees))) if trees else _listing_digest(uri, listings.get(uri))
        yield ("data", channel["ChannelName"]), f"content {short_digest(digest)}" if digest else uri
        yield (LOCATION, channel["ChannelName"]), uri


def _channels(description: Description) -> Sequence[Mapping[str, Any]]:
    channels: Sequence[Mapping[str, Any]] = description.get("InputDataConfig", ())
    return channels


def _listing_digest(uri: str, objects: Iterable[DataObject] | None) -> str | None:
    """Return a digest of the names and contents of all objects below a location; None if they are unknown."""
    found = sorted(objects or (), key=lambda each: each.key)
    if not found:
        return None
    prefix = uri.removeprefix("s3://").partition("/")[2]
    digest = hashlib.sha256()
    for each in found:
        digest.update(json.dumps([each.key.removeprefix(prefix).lstrip("/"), each.size, each.etag]).encode())
    return digest.hexdigest()


def _lines(file: CodeFile | None) -> list[str] | None:
    """Return the lines of a text file; none of a missing file; None if it is no text, or long."""
    if file is None:
        return []
    if file.content is None or len(file.content) > MAX_TEXT_BYTES or b"\0" in file.content:
        return None
    return file.content.decode(errors="replace").splitlines()


def _value(text: str) -> Any:
    """Return the value of a hyperparameter. SDKs send JSON; any other text is returned unchanged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
