"""Creates hooks from a job's configuration file."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainyard.instance.hook.configuration import parse_config

from ..analysis.utils import parse_bool
from ..exceptions import SMDebugValueError
from .collection_manager import CollectionManager
from .config_constants import (
    CONFIG_COLLECTION_CONFIG_KEY,
    CONFIG_COLLECTION_NAME_KEY,
    CONFIG_COLLECTION_PARAMS_KEY,
    CONFIG_DRYRUN_KEY,
    CONFIG_FILE_PATH_ENV_STR,
    CONFIG_HOOK_PARAMS_KEY,
    CONFIG_INCLUDE_REGEX_KEY,
    CONFIG_INCLUDE_WORKERS_KEY,
    CONFIG_OUTDIR_KEY,
    CONFIG_SAVE_ALL_KEY,
    DEFAULT_CONFIG_FILE_PATH,
    DEFAULT_SAGEMAKER_OUTDIR,
    DEFAULT_SAGEMAKER_TENSORBOARD_PATH,
    EXPORT_TENSORBOARD_KEY,
    TENSORBOARD_CONFIG_FILE_PATH_ENV_STR,
    TENSORBOARD_DIR_KEY,
)
from .modes import ModeKeys
from .reduction_config import ReductionConfig
from .sagemaker_utils import is_sagemaker_job
from .save_config import ALLOWED_PARAMS, SaveConfig, SaveConfigMode
from .utils import split

if TYPE_CHECKING:
    from .hook import BaseHook

HookClass = TypeVar("HookClass", bound="BaseHook")
Parameters = Mapping[str, Any]


def create_hook_from_json_config(
    hook_cls: type[HookClass], json_config_path: str | None = None, default_values: Parameters | None = None
) -> HookClass:
    """Create the hook that the file configures. Raises FileNotFoundError if there is no file.

    The path is the argument, else SMDEBUG_CONFIG_FILE_PATH, else the path in a job. `default_values` are the
    framework's, for what the file leaves out.
    """
    config = get_json_config_as_dict(json_config_path)
    parameters: Parameters = config.get(CONFIG_HOOK_PARAMS_KEY) or {}
    collections = config.get(CONFIG_COLLECTION_CONFIG_KEY)
    modes = parse_save_config_modes_dict(parameters)
    hook = hook_cls(
        out_dir=config.get(CONFIG_OUTDIR_KEY) or DEFAULT_SAGEMAKER_OUTDIR,
        dry_run=parse_bool(parameters.get(CONFIG_DRYRUN_KEY), False),
        reduction_config=ReductionConfig.from_dict(parameters) if "reductions" in parameters else None,
        save_config=SaveConfig.from_dict(modes, default_values),
        include_regex=_words(parameters, CONFIG_INCLUDE_REGEX_KEY),
        include_collections=None if collections is None else [_name(collection) for collection in collections],
        save_all=parse_bool(parameters.get(CONFIG_SAVE_ALL_KEY), False),
        include_workers=parameters.get(CONFIG_INCLUDE_WORKERS_KEY, "one"),
        **_tensorboard(parameters),
    )
    hook.is_of_file = True
    hook.overhead_budget = parse_config({CONFIG_HOOK_PARAMS_KEY: parameters}).budget
    for collection in collections or ():
        _configure_collection(hook.collection_manager, collection, modes, default_values or {})
    return hook


def get_json_config_as_dict(json_config_path: str | None) -> dict[str, Any]:
    path = json_config_path or os.environ.get(CONFIG_FILE_PATH_ENV_STR) or DEFAULT_CONFIG_FILE_PATH
    config: dict[str, Any] = json.loads(Path(path).read_text())
    return config


def parse_save_config_modes_dict(
    params: Parameters, base_config_modes: Mapping[ModeKeys, Parameters] | None = None
) -> dict[ModeKeys, Parameters]:
    """Parse the parameters of each mode: those prefixed with its name, over those for all modes, over a base."""
    for_all_modes = parse_save_config_dict(params)
    return {
        mode: {**(base_config_modes or {}).get(mode, {}), **for_all_modes, **parse_save_config_dict(params, mode)}
        for mode in ModeKeys
    }


def parse_save_config_dict(params: Parameters, mode: ModeKeys | None = None) -> Parameters:
    """Parse the parameters about steps, for all modes or for one."""
    if not isinstance(params, Mapping):
        raise SMDebugValueError(f"{params!r} is not a dict of parameters.")
    prefix = "" if mode is None else f"{mode.name.lower()}."
    parsed = {name: params[f"{prefix}{name}"] for name in ALLOWED_PARAMS if f"{prefix}{name}" in params}
    if "save_steps" in parsed:
        parsed["save_steps"] = [int(step) for step in split(str(parsed["save_steps"])) if step]
    return parsed


def _configure_collection(
    manager: CollectionManager,
    collection: Parameters,
    modes: Mapping[ModeKeys, Parameters],
    default_values: Parameters,
) -> None:
    parameters: Parameters = collection.get(CONFIG_COLLECTION_PARAMS_KEY) or {}
    configured = manager.get(_name(collection))
    mode_parameters = parse_save_config_modes_dict(parameters, modes)
    configured.save_config = SaveConfig(
        {mode: SaveConfigMode.from_dict(own, default_values) for mode, own in mode_parameters.items()}
    )
    if "reductions" in parameters:
        configured.reduction_config = ReductionConfig.from_dict(parameters)
    configured.include(_words(parameters, CONFIG_INCLUDE_REGEX_KEY) or [])
    configured.save_histogram = parse_bool(parameters.get("save_histogram"), True)


def _name(collection: Parameters) -> str:
    if CONFIG_COLLECTION_NAME_KEY not in collection:
        raise SMDebugValueError(
            f"{collection!r} of {CONFIG_COLLECTION_CONFIG_KEY} has no {CONFIG_COLLECTION_NAME_KEY}."
        )
    return str(collection[CONFIG_COLLECTION_NAME_KEY])


def _words(parameters: Parameters, name: str) -> list[str] | None:
    return split(parameters[name]) if parameters.get(name) else None


def _tensorboard(parameters: Parameters) -> dict[str, Any]:
    """Return the TensorBoard arguments: in a job from its file, elsewhere from the parameters."""
    if not is_sagemaker_job():
        wanted = parse_bool(parameters.get(EXPORT_TENSORBOARD_KEY), False)
        return {EXPORT_TENSORBOARD_KEY: wanted, TENSORBOARD_DIR_KEY: parameters.get(TENSORBOARD_DIR_KEY)}
    path = Path(os.environ.get(TENSORBOARD_CONFIG_FILE_PATH_ENV_STR) or DEFAULT_SAGEMAKER_TENSORBOARD_PATH)
    folder = json.loads(path.read_text()).get(CONFIG_OUTDIR_KEY) if path.is_file() else None
    return {EXPORT_TENSORBOARD_KEY: folder is not None, TENSORBOARD_DIR_KEY: folder}
