"""Converts the settings of a script's hook to a HookConfig."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainyard.instance.hook import save_config, selection
from trainyard.instance.hook.configuration import HookConfig, Workers

from .collection import NON_HISTOGRAM_COLLECTIONS, NON_REDUCTION_COLLECTIONS, Collection
from .modes import ModeKeys, to_mode
from .reduction_config import ReductionConfig
from .save_config import SaveConfig


@dataclass(frozen=True, slots=True)
class ScriptHookSettings:
    """The settings of a script's hook: its collections, those it saves, and the defaults for the others' configs."""

    folder: Path
    collections: tuple[Collection, ...]
    included: frozenset[str]
    save_config: SaveConfig
    reduction_config: ReductionConfig
    is_of_all_workers: bool
    has_histograms: bool
    # The share of a step's time that statistics may take if nobody asked to save them.
    budget: float | None

    def hook_config(self) -> HookConfig:
        return HookConfig(
            folder=self.folder,
            collections=tuple(self._collection(each) for each in self.collections),
            included=self.included,
            save_config=_schedules(self.save_config),
            reduction_config=_reductions(self.reduction_config),
            workers=Workers.ALL if self.is_of_all_workers else Workers.ONE,
            has_histograms=self.has_histograms,
            budget=self.budget,
        )

    def _collection(self, given: Collection) -> selection.Collection:
        save_config = given.save_config or self.save_config
        save_config.merge_default_save_config(self.save_config)
        reduction_config = given.reduction_config or self.reduction_config
        if given.name in NON_REDUCTION_COLLECTIONS:
            reduction_config = ReductionConfig(save_raw_tensor=True)
        return selection.Collection(
            given.name,
            tuple(given.include_regex),
            frozenset(given.tensor_names),
            reduction_config=_reductions(reduction_config),
            save_config=_schedules(save_config),
            save_histogram=given.save_histogram and given.name not in NON_HISTOGRAM_COLLECTIONS,
            parameters=dict(_parameters_of(save_config, reduction_config)),
        )


def _schedules(given: SaveConfig) -> save_config.SaveConfig:
    modes = {
        to_mode(mode): save_config.SaveSchedule(
            each.save_interval, each.start_step, each.end_step, frozenset(each.save_steps)
        )
        for mode in ModeKeys
        if (each := given.get_save_config(mode))
    }
    return save_config.SaveConfig(modes=modes)


def _reductions(given: ReductionConfig) -> save_config.ReductionConfig:
    return save_config.ReductionConfig(
        frozenset(given.reductions),
        frozenset(given.abs_reductions),
        frozenset(given.norms),
        frozenset(given.abs_norms),
        save_raw_tensor=given.save_raw_tensor,
        save_shape=given.save_shape,
    )


def _parameters_of(save_config: SaveConfig, reduction_config: ReductionConfig) -> Iterable[tuple[str, str]]:
    """Yield the configs as the parameters of a configuration file, for readers of the trial."""
    for mode in ModeKeys:
        each, prefix = save_config.get_save_config(mode), mode.name.lower()
        yield f"{prefix}.save_interval", str(each.save_interval)
        yield f"{prefix}.start_step", str(each.start_step)
        if each.end_step is not None:
            yield f"{prefix}.end_step", str(each.end_step)
        if each.save_steps:
            yield f"{prefix}.save_steps", ",".join(map(str, each.save_steps))
    if reduction_config.words:
        yield "reductions", ",".join(reduction_config.words)
    yield "save_raw_tensor", str(reduction_config.save_raw_tensor)
