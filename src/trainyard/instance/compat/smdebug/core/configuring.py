"""What a script has said to a hook, in the values that this project's hooks take."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainyard.instance.hook import collecting, reductions, saving
from trainyard.instance.hook.configuration import HookConfig, Workers

from .collection import NON_HISTOGRAM_COLLECTIONS, NON_REDUCTION_COLLECTIONS, Collection
from .modes import ModeKeys, to_mode
from .reduction_config import ReductionConfig
from .save_config import SaveConfig


@dataclass(frozen=True, slots=True)
class Asked:
    """All that was said: the collections, those that are saved, and what holds where a collection is silent."""

    folder: Path
    collections: tuple[Collection, ...]
    included: frozenset[str]
    save_config: SaveConfig
    reduction_config: ReductionConfig
    is_of_all_workers: bool
    has_histograms: bool
    budget: float | None  # the share of a step's time that statistics which nobody asked to save may take

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

    def _collection(self, told: Collection) -> collecting.Collection:
        save_config = told.save_config or self.save_config
        save_config.merge_default_save_config(self.save_config)
        reduction_config = told.reduction_config or self.reduction_config
        if told.name in NON_REDUCTION_COLLECTIONS:
            reduction_config = ReductionConfig(save_raw_tensor=True)
        return collecting.Collection(
            told.name,
            tuple(told.include_regex),
            frozenset(told.tensor_names),
            reduction_config=_reductions(reduction_config),
            save_config=_schedules(save_config),
            save_histogram=told.save_histogram and told.name not in NON_HISTOGRAM_COLLECTIONS,
            parameters=dict(_words(save_config, reduction_config)),
        )


def _schedules(told: SaveConfig) -> saving.SaveConfig:
    modes = {
        to_mode(mode): saving.SaveSchedule(
            each.save_interval, each.start_step, each.end_step, frozenset(each.save_steps)
        )
        for mode in ModeKeys
        if (each := told.get_save_config(mode))
    }
    return saving.SaveConfig(modes=modes)


def _reductions(told: ReductionConfig) -> reductions.ReductionConfig:
    return reductions.ReductionConfig(
        frozenset(told.reductions),
        frozenset(told.abs_reductions),
        frozenset(told.norms),
        frozenset(told.abs_norms),
        save_raw_tensor=told.save_raw_tensor,
        save_shape=told.save_shape,
    )


def _words(save_config: SaveConfig, reduction_config: ReductionConfig) -> Iterable[tuple[str, str]]:
    """The same in the words of configurations, for those who read the trial."""
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
