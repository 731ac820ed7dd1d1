"""Named sets of tensors, and what is asked of a tensor by the sets that it is in."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from trainyard.formats.tensors.contract import CollectionInfo, Mode, Probe
from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.hook.contract import Want
from trainyard.instance.hook.reductions import RAW, ReductionConfig
from trainyard.instance.hook.saving import SaveConfig

ALL, DEFAULT, LOSSES = "all", "default", "losses"
SCALAR_COLLECTIONS = frozenset({LOSSES, "metrics", "feature_importance", "average_shap", "sm_metrics"})


@dataclass(frozen=True)
class Collection:
    """Tensors by names and by regexes, which are searched anywhere in a name. None is what holds for the whole hook."""

    name: str
    include_regex: tuple[str, ...] = ()
    tensor_names: frozenset[str] = frozenset()
    reduction_config: ReductionConfig | None = None
    save_config: SaveConfig | None = None
    save_histogram: bool = True
    parameters: Mapping[str, str] = field(default_factory=dict, compare=False)  # as they were given

    def has(self, tensor: str) -> bool:
        return tensor in self.tensor_names or any(pattern.search(tensor) for pattern in self._patterns)

    @property
    def info(self) -> CollectionInfo:
        return CollectionInfo(self.name, self.include_regex, tuple(sorted(self.tensor_names)), self.parameters)

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(compiled(regex) for regex in self.include_regex)


@dataclass(frozen=True, slots=True)
class Framework:
    """What a framework has without being asked: its collections, those that are always saved, its interval."""

    name: str
    collections: tuple[Collection, ...]
    included: frozenset[str]
    interval: int = 500


# AWS's regexes, except that weights and biases leave out the optimizer's state, which AWS does not have.
TORCH = Framework(
    "pytorch",
    (
        Collection(ALL, (".*",)),
        Collection(DEFAULT),
        Collection("weights", (r"^(?!gradient|optimizer/).*weight",)),
        Collection("biases", (r"^(?!gradient|optimizer/).*bias",)),
        Collection("gradients", ("^gradient",)),
        Collection(LOSSES, ("[Ll]oss_(?!input).*output",)),
        Collection("optimizer_variables", ("^optimizer/",)),
    ),
    frozenset({LOSSES}),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is asked of one tensor, whatever the step."""

    collections: tuple[str, ...]  # all that it is in
    included: tuple[str, ...]  # those that are saved
    is_followed: bool  # its statistics are wanted at every step
    probes: tuple[Probe, ...]
    is_scalar: bool  # is in a collection of scalars


@dataclass(frozen=True, slots=True)
class Saved:
    """What is saved of a tensor in a step: the union of what its collections that are due want."""

    is_raw: bool = False
    extras: frozenset[str] = frozenset()
    has_histogram: bool = False


class Selection:
    """Answers what is asked of a tensor, from the collections of a hook and the wants of those who follow it."""

    def __init__(
        self,
        collections: Iterable[Collection],
        *,
        included: Iterable[str],
        wants: Sequence[Want] = (),
        save_config: SaveConfig | None = None,
        reduction_config: ReductionConfig = RAW,
        has_histograms: bool = False,
    ) -> None:
        self.collections = {collection.name: collection for collection in collections}
        self.included = frozenset(included) & self.collections.keys()
        self._wants = [(want, tuple(compiled(regex) for regex in want.regexes)) for want in wants]
        self._save_config = save_config or SaveConfig()
        self._reduction_config = reduction_config
        self._has_histograms = has_histograms
        self._choices: dict[str, Choice] = {}

    def choice(self, tensor: str) -> Choice:
        found = self._choices.get(tensor)
        if found is None:
            found = self._choices[tensor] = self._choose(tensor)
        return found

    def is_asked(self, tensor: str) -> bool:
        """Whether this tensor is ever looked at."""
        choice = self.choice(tensor)
        return choice.is_followed or bool(choice.included)

    def due(self, mode: Mode, mode_step: int) -> frozenset[str]:
        """The collections that are saved in this step."""
        return frozenset(name for name in self.included if self._schedule(name).has(mode, mode_step))

    def saved(self, choice: Choice, due: frozenset[str]) -> Saved | None:
        """What is saved of a tensor when these collections are due; None is nothing."""
        names = [name for name in choice.included if name in due]
        if not names:
            return None
        configs = [self.collections[name].reduction_config or self._reduction_config for name in names]
        return Saved(
            is_raw=not choice.is_scalar and any(config.save_raw_tensor for config in configs),
            extras=frozenset().union(*(config.extras for config in configs)),
            has_histogram=any(self._has_histogram(self.collections[name]) for name in names),
        )

    def _has_histogram(self, collection: Collection) -> bool:
        """Where TensorBoard shows them, unless the collection refuses; elsewhere only where it asks for them."""
        return collection.save_histogram and (self._has_histograms or "save_histogram" in collection.parameters)

    def _schedule(self, collection: str) -> SaveConfig:
        return self.collections[collection].save_config or self._save_config

    def _choose(self, tensor: str) -> Choice:
        names = tuple(name for name, collection in self.collections.items() if collection.has(tensor))
        included = tuple(name for name in names if name in self.included)
        wanting = [want for want, patterns in self._wants if _is_wanted(want, patterns, tensor=tensor, names=names)]
        probes = dict.fromkeys(probe for want in wanting for probe in want.probes)
        is_scalar = not SCALAR_COLLECTIONS.isdisjoint(names)
        return Choice(names, included, bool(wanting or included), tuple(probes), is_scalar)


def compiled(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except re.error as error:
        raise InvalidRequest(f'"{regex}" is no regular expression of Python: {error}.') from error


def _is_wanted(want: Want, patterns: Iterable[re.Pattern[str]], *, tensor: str, names: Sequence[str]) -> bool:
    return any(name in names for name in want.collections) or any(pattern.search(tensor) for pattern in patterns)
