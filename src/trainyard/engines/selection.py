"""Which of a yard's engines runs a job, and why.

The tag `trainyard:engine` of a job names its engine. Without that tag, the first matching rule of engines.toml in the
home folder decides. A rule matches if all of its conditions do. A condition is a shell pattern, or a list of patterns
of which one must match. The pattern for the image is matched against the full name and the name without the registry.

    [[rules]]
    engine = "ray"
    instance_type = ["ml.p4d.*", "ml.g5.*"]
    image = "pytorch-training:*"
    tag = { team = "vision" }

If no rule matches, a job whose container image must really run goes to the first engine that runs images, and any
other job to the yard's first engine.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trainyard.engines.engine_set import EngineSet
from trainyard.engines.images import ImageReference
from trainyard.foundation.engine_names import ENGINE_TAG
from trainyard.foundation.errors import InvalidRequest

Patterns = tuple[str, ...]

_RULE_KEYS = ("engine", "instance_type", "image", "tag")


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """What is known about a job when its engine is selected. The image of a quote may not be known yet."""

    image: str = ""
    instance_types: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineRule:
    """Sends jobs to an engine. One pattern of each condition must match; a condition without patterns always does."""

    engine: str
    instance_type: Patterns = ()
    image: Patterns = ()
    tags: Mapping[str, Patterns] = field(default_factory=dict)

    def matches(self, wanted: SelectionRequest) -> bool:
        """Whether the rule applies to a job. If the job has several instance types, all must match."""
        names = _image_names(wanted.image) if wanted.image else []
        return (
            all(_matches_any(name, self.instance_type) for name in wanted.instance_types)
            and (not self.image or any(_matches_any(name, self.image) for name in names))
            and all(key in wanted.tags and _matches_any(wanted.tags[key], self.tags[key]) for key in self.tags)
        )

    @property
    def conditions(self) -> tuple[str, ...]:
        """Each condition in readable form."""
        named = {"instance_type": self.instance_type, "image": self.image}
        named |= {f"tag {key}": patterns for key, patterns in self.tags.items()}
        return tuple(f"{name} = {' or '.join(patterns)}" for name, patterns in named.items() if patterns)


@dataclass(frozen=True, slots=True)
class EngineSelection:
    """The name of an engine, and a clause that says why it was selected."""

    engine: str
    why: str


class EngineRules:
    """The rules of one yard. The file is read for each job, so a change takes effect at once."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> tuple[EngineRule, ...]:
        """Return the rules in order. Raises InvalidRequest, which names the file, if they are invalid."""
        try:
            content = tomllib.loads(self._file.read_text())
        except FileNotFoundError:
            return ()
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{self._file} is not valid TOML: {error}.") from error
        tables = content.get("rules", [])
        if set(content) - {"rules"} or not isinstance(tables, list):
            raise InvalidRequest(f"{self._file} may hold only rules; write [[rules]] above the values of each.")
        return tuple(self._parse_rule(number, table) for number, table in enumerate(tables, 1))

    def _parse_rule(self, number: int, table: object) -> EngineRule:
        try:
            return _parse_rule(table)
        except InvalidRequest as error:
            raise InvalidRequest(f"{self._file}: rule {number} {error.message}") from error


def select_engine(
    wanted: SelectionRequest,
    engines: EngineSet,
    *,
    rules: EngineRules,
    must_run: Callable[[str], bool] = lambda _: False,
) -> EngineSelection:
    """Select the engine of a job. Raises InvalidRequest if the yard does not have it.

    `must_run` says whether an image must really run, because it maps to no Python of the yard.
    """
    choice = (
        _select_by_tag(wanted) or _select_by_rule(wanted, rules.read()) or _select_default(wanted, engines, must_run)
    )
    if choice.engine not in engines:
        raise InvalidRequest(
            f'The job should run on the engine "{choice.engine}", because {choice.why}, but this yard has only '
            f"{' and '.join(engines.names)}. Choose one of these, or add it to the yard's setting `engines`."
        )
    return choice


def _select_by_tag(wanted: SelectionRequest) -> EngineSelection | None:
    name = wanted.tags.get(ENGINE_TAG)
    return None if name is None else EngineSelection(name, f"its tag {ENGINE_TAG} names it")


def _select_by_rule(wanted: SelectionRequest, rules: Sequence[EngineRule]) -> EngineSelection | None:
    for number, rule in enumerate(rules, 1):
        if rule.matches(wanted):
            conditions = f" ({', '.join(rule.conditions)})" if rule.conditions else ""
            return EngineSelection(rule.engine, f"rule {number} of engines.toml matches{conditions}")
    return None


def _select_default(wanted: SelectionRequest, engines: EngineSet, must_run: Callable[[str], bool]) -> EngineSelection:
    first = engines.default
    if wanted.image and first.capabilities().images and must_run(wanted.image):
        running = next((engine for engine in engines if not engine.capabilities().images), None)
        if running is not None:
            return EngineSelection(running.name, "only this engine can run its container image")
    return EngineSelection(first.name, "no rule matches and this is the yard's first engine")


def _image_names(image: str) -> list[str]:
    return [image, str(ImageReference.parse(image))]


def _matches_any(name: str, patterns: Patterns) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _parse_rule(table: object) -> EngineRule:
    if not isinstance(table, dict):
        raise InvalidRequest("is not a table; write [[rules]] above its values.")
    unknown = sorted(set(table) - set(_RULE_KEYS))
    if unknown:
        raise InvalidRequest(f'has the unknown key "{unknown[0]}"; the keys are {", ".join(_RULE_KEYS)}.')
    engine = table.get("engine")
    if not isinstance(engine, str) or not engine:
        raise InvalidRequest('names no engine; write engine = "local".')
    return EngineRule(
        engine,
        _parse_patterns(table, "instance_type"),
        _parse_patterns(table, "image"),
        dict(_parse_tags(table.get("tag", {}))),
    )


def _parse_tags(table: Any) -> Iterator[tuple[str, Patterns]]:
    if not isinstance(table, dict):
        raise InvalidRequest('has a tag that is not a table; write tag = { team = "vision" }.')
    for key in table:
        yield key, _parse_patterns(table, key) or ("*",)


def _parse_patterns(table: Mapping[str, Any], name: str) -> Patterns:
    """Parse a string or a list of strings; empty if the rule has no such key."""
    given = table.get(name, [])
    patterns = [given] if isinstance(given, str) else given
    if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
        raise InvalidRequest(f'needs a string or a list of strings for "{name}".')
    return tuple(patterns)
