"""Collections, which are named sets of tensors, and what to record of a tensor given the collections it is in."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from trainyard.formats.tensors.contract import CollectionInfo, Mode, Probe
from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.hook.contract import TensorRequest
from trainyard.instance.hook.save_config import RAW, ReductionConfig, SaveConfig

ALL, DEFAULT, LOSSES = "all", "default", "losses"
SCALAR_COLLECTIONS = frozenset({LOSSES, "metrics", "feature_importance", "average_shap", "sm_metrics"})


@dataclass(frozen=True)
class Collection:
    """Tensors by name and by regex, searched anywhere in a name. A config of None means the hook's own applies."""

    name: str
    include_regex: tuple[str, ...] = ()
    tensor_names: frozenset[str] = frozenset()
    reduction_config: ReductionConfig | None = None
    save_config: SaveConfig | None = None
    save_histogram: bool = True
    # As the user gave them.
    parameters: Mapping[str, str] = field(default_factory=dict, compare=False)

    def has(self, tensor: str) -> bool:
        return tensor in self.tensor_names or any(pattern.search(tensor) for pattern in self._patterns)

    @property
    def info(self) -> CollectionInfo:
        return CollectionInfo(self.name, self.include_regex, tuple(sorted(self.tensor_names)), self.parameters)

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(compile_regex(regex) for regex in self.include_regex)


@dataclass(frozen=True, slots=True)
class FrameworkDefaults:
    """A framework's defaults: its collections, those always saved, and its save interval."""

    name: str
    collections: tuple[Collection, ...]
    included: frozenset[str]
    interval: int = 500


# AWS's regexes, except that weights and biases exclude the optimizer's state, which AWS does not record.
TORCH = FrameworkDefaults(
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
class TensorSettings:
    """What to record of one tensor, independent of the step.

    `collections` are all that it is in, `included` those that are saved. A tracked tensor has statistics at every step.
    """

    collections: tuple[str, ...]
    included: tuple[str, ...]
    is_tracked: bool
    probes: tuple[Probe, ...]
    is_scalar: bool


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """What to save of a tensor in one step: the union of what its due collections ask for."""

    is_raw: bool = False
    extras: frozenset[str] = frozenset()
    has_histogram: bool = False


class Selection:
    """Decides what to record of a tensor, from the collections of a hook and the requests of rules."""

    def __init__(
        self,
        collections: Iterable[Collection],
        *,
        included: Iterable[str],
        requests: Sequence[TensorRequest] = (),
        save_config: SaveConfig | None = None,
        reduction_config: ReductionConfig = RAW,
        has_histograms: bool = False,
    ) -> None:
        self.collections = {collection.name: collection for collection in collections}
        self.included = frozenset(included) & self.collections.keys()
        self._requests = [(request, tuple(compile_regex(regex) for regex in request.regexes)) for request in requests]
        self._save_config = save_config or SaveConfig()
        self._reduction_config = reduction_config
        self._has_histograms = has_histograms
        self._settings: dict[str, TensorSettings] = {}

    def settings(self, tensor: str) -> TensorSettings:
        settings = self._settings.get(tensor)
        if settings is None:
            settings = self._settings[tensor] = self._decide(tensor)
        return settings

    def is_selected(self, tensor: str) -> bool:
        """Whether this tensor is recorded in any step."""
        settings = self.settings(tensor)
        return settings.is_tracked or bool(settings.included)

    def due(self, mode: Mode, mode_step: int) -> frozenset[str]:
        """Return the collections to save in this step."""
        return frozenset(name for name in self.included if self._schedule(name).has(mode, mode_step))

    def save_request(self, settings: TensorSettings, due: frozenset[str]) -> SaveRequest | None:
        """Return what to save of a tensor if these collections are due, or None for nothing."""
        names = [name for name in settings.included if name in due]
        if not names:
            return None
        configs = [self.collections[name].reduction_config or self._reduction_config for name in names]
        return SaveRequest(
            is_raw=not settings.is_scalar and any(config.save_raw_tensor for config in configs),
            extras=frozenset().union(*(config.extras for config in configs)),
            has_histogram=any(self._has_histogram(self.collections[name]) for name in names),
        )

    def _has_histogram(self, collection: Collection) -> bool:
        """Whether to save histograms: with TensorBoard unless the collection opts out, without only if it opts in."""
        return collection.save_histogram and (self._has_histograms or "save_histogram" in collection.parameters)

    def _schedule(self, collection: str) -> SaveConfig:
        return self.collections[collection].save_config or self._save_config

    def _decide(self, tensor: str) -> TensorSettings:
        names = tuple(name for name, collection in self.collections.items() if collection.has(tensor))
        included = tuple(name for name in names if name in self.included)
        requests = [
            request
            for request, patterns in self._requests
            if _is_requested(request, patterns, tensor=tensor, names=names)
        ]
        probes = dict.fromkeys(probe for request in requests for probe in request.probes)
        is_scalar = not SCALAR_COLLECTIONS.isdisjoint(names)
        return TensorSettings(names, included, bool(requests or included), tuple(probes), is_scalar)


def compile_regex(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except re.error as error:
        raise InvalidRequest(f'"{regex}" is not a valid Python regular expression: {error}.') from error


def _is_requested(
    request: TensorRequest, patterns: Iterable[re.Pattern[str]], *, tensor: str, names: Sequence[str]
) -> bool:
    return any(name in names for name in request.collections) or any(pattern.search(tensor) for pattern in patterns)
