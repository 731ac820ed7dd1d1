"""Which of a yard's engines runs a job, and why.

Who creates a job may name the engine by the tag `trainyard:engine`. Else the rules of the home folder's engines.toml
are asked: the first of which every condition holds decides. Conditions are shell patterns, or lists of them of which
one must fit. That of the image is held against its whole name and against its name without the registry.

    [[rules]]
    engine = "ray"
    instance_type = ["ml.p4d.*", "ml.g5.*"]
    image = "pytorch-training:*"
    tag = { team = "vision" }

Where no rule holds, an image that must really run goes to the first engine that runs images, and all else to the
yard's first engine.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trainyard.engines.images import Reference
from trainyard.engines.several import Engines
from trainyard.foundation.engine_names import ENGINE_TAG
from trainyard.foundation.errors import InvalidRequest

Patterns = tuple[str, ...]

_MEMBERS = ("engine", "instance_type", "image", "tag")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is known of a job when its engine is chosen."""

    image: str = ""  # empty where it is not known yet, as for a quote
    instance_types: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """Sends jobs to an engine. Of each condition one pattern must fit; a condition without patterns always holds."""

    engine: str
    instance_type: Patterns = ()
    image: Patterns = ()
    tags: Mapping[str, Patterns] = field(default_factory=dict)

    def holds(self, wanted: Wanted) -> bool:
        """Whether it is for that job; of several instance types all must fit."""
        names = _names(wanted.image) if wanted.image else []
        return (
            all(_fits(name, self.instance_type) for name in wanted.instance_types)
            and (not self.image or any(_fits(name, self.image) for name in names))
            and all(key in wanted.tags and _fits(wanted.tags[key], self.tags[key]) for key in self.tags)
        )

    @property
    def conditions(self) -> tuple[str, ...]:
        """Each condition as people read it."""
        named = {"instance_type": self.instance_type, "image": self.image}
        named |= {f"tag {key}": patterns for key, patterns in self.tags.items()}
        return tuple(f"{name} = {' or '.join(patterns)}" for name, patterns in named.items() if patterns)


@dataclass(frozen=True, slots=True)
class Choice:
    """The name of an engine, and a clause that says what has chosen it."""

    engine: str
    why: str


class EngineRules:
    """The rules of one yard. The file is read anew with each question, so a change counts at once."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> tuple[Rule, ...]:
        """In their order; InvalidRequest, naming the file and what is wrong, when they cannot be read."""
        try:
            content = tomllib.loads(self._file.read_text())
        except FileNotFoundError:
            return ()
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{self._file} is not valid TOML: {error}.") from error
        tables = content.get("rules", [])
        if set(content) - {"rules"} or not isinstance(tables, list):
            raise InvalidRequest(f"{self._file} holds rules only; write [[rules]] above the values of each.")
        return tuple(self._rule(number, table) for number, table in enumerate(tables, 1))

    def _rule(self, number: int, table: object) -> Rule:
        try:
            return _rule(table)
        except InvalidRequest as error:
            raise InvalidRequest(f"{self._file}: rule {number} {error.message}") from error


def choose(
    wanted: Wanted, engines: Engines, *, rules: EngineRules, must_run: Callable[[str], bool] = lambda _: False
) -> Choice:
    """The engine of a job. InvalidRequest when it is sent to one that the yard does not have.

    `must_run` tells of an image whether it must really run, since no Python of the yard stands for it.
    """
    choice = _asked_for(wanted) or _ruled(wanted, rules.read()) or _left_open(wanted, engines, must_run)
    if choice.engine not in engines:
        raise InvalidRequest(
            f'The job is sent to the engine "{choice.engine}", because {choice.why}; this yard has '
            f"{' and '.join(engines.names)}. Name one of these, or have it added to the yard's setting `engines`."
        )
    return choice


def _asked_for(wanted: Wanted) -> Choice | None:
    name = wanted.tags.get(ENGINE_TAG)
    return None if name is None else Choice(name, f"its tag {ENGINE_TAG} names it")


def _ruled(wanted: Wanted, rules: Sequence[Rule]) -> Choice | None:
    for number, rule in enumerate(rules, 1):
        if rule.holds(wanted):
            conditions = f" ({', '.join(rule.conditions)})" if rule.conditions else ""
            return Choice(rule.engine, f"rule {number} of engines.toml holds{conditions}")
    return None


def _left_open(wanted: Wanted, engines: Engines, must_run: Callable[[str], bool]) -> Choice:
    first = engines.first
    if wanted.image and first.capabilities().images and must_run(wanted.image):
        running = next((engine for engine in engines if not engine.capabilities().images), None)
        if running is not None:
            return Choice(running.name, "its image must really run, which this engine does")
    return Choice(first.name, "no rule holds for it and this is the yard's first engine")


def _names(image: str) -> list[str]:
    return [image, str(Reference.parse(image))]


def _fits(name: str, patterns: Patterns) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _rule(table: object) -> Rule:
    if not isinstance(table, dict):
        raise InvalidRequest("is not a table; write [[rules]] above its values.")
    unknown = sorted(set(table) - set(_MEMBERS))
    if unknown:
        raise InvalidRequest(f'has "{unknown[0]}", which is none of {", ".join(_MEMBERS)}.')
    engine = table.get("engine")
    if not isinstance(engine, str) or not engine:
        raise InvalidRequest('names no engine; write engine = "local".')
    return Rule(
        engine,
        _patterns(table, "instance_type"),
        _patterns(table, "image"),
        dict(_tags(table.get("tag", {}))),
    )


def _tags(table: Any) -> Iterator[tuple[str, Patterns]]:
    if not isinstance(table, dict):
        raise InvalidRequest('has a tag that is no table; write tag = { team = "vision" }.')
    for key in table:
        yield key, _patterns(table, key) or ("*",)


def _patterns(table: Mapping[str, Any], name: str) -> Patterns:
    """One text or a list of some; nothing where there is no such member."""
    given = table.get(name, [])
    patterns = [given] if isinstance(given, str) else given
    if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
        raise InvalidRequest(f'has for "{name}" neither a text nor a list of texts.')
    return tuple(patterns)
