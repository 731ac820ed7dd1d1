"""The configuration of a hook: AWS's debughookconfig.json, with two parameters of our own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.hook.contract import TensorRequest
from trainyard.instance.hook.save_config import (
    MODE_SAVE_PARAMETERS,
    RAW,
    SAVE_PARAMETERS,
    ReductionConfig,
    SaveConfig,
    SaveSchedule,
)
from trainyard.instance.hook.selection import ALL, DEFAULT, TORCH, Collection, FrameworkDefaults, Selection
from trainyard.link.event_protocol import HOOK_CONFIG

TENSORS = "/opt/ml/output/tensors"  # AWS's default LocalPath
DEFAULT_BUDGET = 0.01


class Workers(StrEnum):
    """Which ranks write, in AWS's words."""

    ONE = "one"  # the first rank
    ALL = "all"


@dataclass(frozen=True, slots=True)
class HookConfig:
    """What a hook captures, and when.

    `budget` is the share of a step's time that statistics may cost if nobody asked to save them; None means no limit.
    `record_steps` is how many steps the flight recorder keeps; None turns it on if a rule is configured.
    """

    folder: Path
    collections: tuple[Collection, ...] = TORCH.collections
    included: frozenset[str] = TORCH.included
    save_config: SaveConfig = field(default_factory=SaveConfig)
    reduction_config: ReductionConfig = RAW
    workers: Workers = Workers.ONE
    has_histograms: bool = False
    budget: float | None = DEFAULT_BUDGET
    record_steps: int | None = None

    def selection(self, requests: Sequence[TensorRequest] = ()) -> Selection:
        return Selection(
            self.collections,
            included=self.included,
            requests=requests,
            save_config=self.save_config,
            reduction_config=self.reduction_config,
            has_histograms=self.has_histograms,
        )


def load_config(file: Path, *, framework: FrameworkDefaults = TORCH) -> HookConfig | None:
    """Load a configuration file, or return None if it does not exist. An invalid file raises InvalidRequest."""
    try:
        content = json.loads(file.read_bytes() or b"null")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"The hook's configuration {file} cannot be read: {error}.") from error
    if content is None:
        return None
    if not isinstance(content, dict):
        raise InvalidRequest(f"The hook's configuration {file} is not a JSON object.")
    config = parse_config(content, framework=framework)
    return replace(config, folder=_resolve_folder(config.folder, file))


def parse_config(content: Mapping[str, Any], *, framework: FrameworkDefaults = TORCH) -> HookConfig:
    """Parse the content of debughookconfig.json. Values may be strings; unknown parameters are ignored."""
    hook: Mapping[str, Any] = content.get("HookParameters") or {}
    named = {
        each["CollectionName"]: each.get("CollectionParameters") or {}
        for each in content.get("CollectionConfigurations") or ()
    }
    collections = {collection.name: collection for collection in framework.collections}
    save_config = SaveConfig(SaveSchedule(framework.interval)).with_parameters(_save_parameters(hook))
    reduction_config = _reductions(hook, RAW)
    for name, parameters in named.items():
        known = collections.get(name, Collection(name))
        collections[name] = _configure_collection(
            known, parameters, save_config=save_config, reductions=reduction_config
        )
    included = framework.included | named.keys()
    regexes = _regexes(hook)
    if regexes:
        collections[DEFAULT] = _with_regexes(collections[DEFAULT], regexes)
        included |= {DEFAULT}
    if _flag(hook, "save_all"):
        included |= {ALL}
    return HookConfig(
        folder=Path(content.get("LocalPath") or TENSORS),
        collections=tuple(collections.values()),
        included=frozenset(included),
        save_config=save_config,
        reduction_config=reduction_config,
        workers=_workers(hook),
        has_histograms=_flag(hook, "export_tensorboard"),
        budget=_budget(hook),
        record_steps=_record_steps(hook),
    )


def _resolve_folder(folder: Path, file: Path) -> Path:
    """Return where the folder is for a program whose /opt/ml lies elsewhere, judging by its configuration file."""
    ml = Path(TENSORS).parents[1]
    is_elsewhere = folder.is_relative_to(ml) and str(file).endswith(HOOK_CONFIG)
    return Path(str(file).removesuffix(HOOK_CONFIG), folder.relative_to(ml)) if is_elsewhere else folder


def _configure_collection(
    known: Collection, parameters: Mapping[str, Any], *, save_config: SaveConfig, reductions: ReductionConfig
) -> Collection:
    save_parameters = _save_parameters(parameters)
    return Collection(
        known.name,
        known.include_regex + _regexes(parameters),
        known.tensor_names,
        reduction_config=_reductions(parameters, reductions),
        save_config=save_config.with_parameters(save_parameters) if save_parameters else None,
        save_histogram=_flag(parameters, "save_histogram", usual=True),
        parameters={word: str(value) for word, value in parameters.items()},
    )


def _with_regexes(collection: Collection, regexes: tuple[str, ...]) -> Collection:
    return Collection(
        collection.name,
        collection.include_regex + regexes,
        collection.tensor_names,
        reduction_config=collection.reduction_config,
        save_config=collection.save_config,
        save_histogram=collection.save_histogram,
        parameters=collection.parameters,
    )


def _save_parameters(parameters: Mapping[str, Any]) -> dict[str, object]:
    return {
        word: value for word, value in parameters.items() if word in SAVE_PARAMETERS or word in MODE_SAVE_PARAMETERS
    }


def _reductions(parameters: Mapping[str, Any], usual: ReductionConfig) -> ReductionConfig:
    """Parse reductions. Whoever asks for reductions gets no raw values, unless they ask for those too."""
    if not {"reductions", "save_raw_tensor", "save_shape"} & parameters.keys():
        return usual
    words = parameters.get("reductions") or ""
    return ReductionConfig.parse(
        words if isinstance(words, str) else ",".join(words),
        save_raw_tensor=_flag(parameters, "save_raw_tensor", usual=not words),
        save_shape=_flag(parameters, "save_shape"),
    )


def _regexes(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Parse a list, or a comma-separated string; a comma inside brackets or braces is part of its regex."""
    given = parameters.get("include_regex") or ()
    if not isinstance(given, str):
        return tuple(given)
    parts, depth = [""], 0
    for character in given:
        depth += (character in "{[(") - (character in ")]}")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts if part.strip())


def _workers(hook: Mapping[str, Any]) -> Workers:
    word = str(hook.get("include_workers") or Workers.ONE.value)
    try:
        return Workers(word)
    except ValueError:
        raise InvalidRequest(f'"include_workers" is "{word}". Use "one" (the first rank) or "all".') from None


def _budget(hook: Mapping[str, Any]) -> float | None:
    """Parse the budget, which is given in percent of a step's time."""
    given = str(hook.get("overhead_budget") or "").strip().lower().removesuffix("%")
    if given == "none":
        return None
    try:
        share = float(given) / 100 if given else DEFAULT_BUDGET
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InvalidRequest(
            f'"overhead_budget" is "{given}". Give the percentage of a step\'s time that statistics may cost, such as '
            '"1", or "none" for no limit.'
        )
    return share


def _record_steps(hook: Mapping[str, Any]) -> int | None:
    given = str(hook.get("record_steps", "")).strip()
    if not given:
        return None
    if not given.isdigit():
        raise InvalidRequest(
            f'"record_steps" is "{given}". Give the number of steps to keep, such as "2", or "0" for none.'
        )
    return int(given)


def _flag(parameters: Mapping[str, Any], word: str, *, usual: bool = False) -> bool:
    given = parameters.get(word)
    if given is None or given == "":
        return usual
    if str(given).lower() in ("true", "1", "yes"):
        return True
    if str(given).lower() in ("false", "0", "no", "none"):
        return False
    raise InvalidRequest(f'"{word}" is "{given}". Use "true" or "false".')
