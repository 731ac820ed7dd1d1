"""Trainings as the real hook records them, and what rules find in that."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from trainyard.formats.tensors.arrow_recording import ArrowRecording
from trainyard.formats.tensors.contract import Mode, Step, StepSubscriber
from trainyard.foundation.sources import FolderSource
from trainyard.insight.rules.contract import ComparesRuns, DebuggerRule, Evaluation, StepsOf
from trainyard.insight.rules.judging import Judge
from trainyard.instance.hook.configuration import HookConfig, Workers
from trainyard.instance.hook.contract import Audience, Want
from trainyard.instance.hook.pytorch.watching import TorchHook
from trainyard.instance.hook.recording import Recording
from trainyard.instance.hook.reductions import ReductionConfig
from trainyard.instance.hook.saving import SaveConfig, SaveSchedule
from trainyard.instance.hook.workers import Worker
from trainyard.instance.hook.xgboost import XGBOOST, BoosterCallback
from trainyard.instance.judge.folders import JoinedFolders
from trainyard.instance.judge.main import follow
from trainyard.testing.trainings import watch
from trainyard.testing.trainings.boosting import BoostedTraining, Boosting
from trainyard.testing.trainings.replicas import run_replicas
from trainyard.testing.trainings.training import Training

ALONE = Worker()
BOOSTED_COLLECTIONS = frozenset({"metrics", "feature_importance", "predictions", "labels", "hyperparameters", "trees"})


def record(training: Training, seed: int, *, folder: Path, rules: Iterable[DebuggerRule]) -> None:
    """Run a training with a hook that takes what the rules need of every step, whatever that costs."""
    watching = Hooked(folder, rules)
    training.run(seed, watch=watching)
    watching.close()


def record_replicas(ranks: Sequence[Training], seed: int, *, folder: Path, rules: Sequence[DebuggerRule]) -> None:
    """Run replicas of a training, each with a hook of its own."""
    watches = [Hooked(folder, rules, worker=Worker(rank, len(ranks))) for rank in range(len(ranks))]
    run_replicas(ranks, seed, watches=watches)
    for each in watches:
        each.close()


def record_boosted(training: BoostedTraining, seed: int, *, folder: Path, rules: Iterable[DebuggerRule]) -> None:
    """Run a boosted training with XGBoost's hook, which saves every round."""
    config = HookConfig(
        folder,
        collections=XGBOOST.collections,
        included=BOOSTED_COLLECTIONS,
        save_config=SaveConfig(SaveSchedule(interval=1)),
        budget=None,
    )
    recording = Recording(config, Audience(wants=wants_of(rules)), worker=ALONE)

    def make_callback(boosting: Boosting, training: Any, validation: Any) -> BoosterCallback:
        given = {"hyperparameters": boosting.parameters, "train_data": training, "validation_data": validation}
        return BoosterCallback(recording, **given)

    training.run(seed, make_callback=make_callback)
    recording.close()


def judge(folder: Path, rules: Mapping[str, DebuggerRule], *, other: Path | None = None) -> Sequence[Evaluation]:
    """How the rules stand at the end of a run that was recorded; one that compares runs is given the other."""
    for rule in rules.values():
        if isinstance(rule, ComparesRuns) and other is not None:
            rule.compare_with(dict.fromkeys(rule.needs.other_runs, steps_of(other)))
    judging = Judge(rules)
    follow(JoinedFolders([folder]), judging)
    return judging.evaluations


def steps_of(folder: Path) -> StepsOf:
    """The steps of a run that was recorded."""
    recording = ArrowRecording(FolderSource(folder))
    recording.refresh()

    def find(worker: str, number: int) -> Step | None:
        known = recording.workers.get(worker)
        row = int(np.searchsorted(known.index.numbers, number)) if known is not None else 0
        if known is None or row >= len(known.index) or known.index.numbers[row] != number:
            return None
        return known.step(row)

    return find


def wants_of(rules: Iterable[DebuggerRule]) -> list[Want]:
    """What a hook is asked for, so that the rules can judge."""
    needs = [part for rule in rules for part in rule.needs.parts]
    return [Want(need.collections, need.regexes, need.probes) for need in needs]


class Hooked:
    """A watch that hands everything to a hook."""

    def __init__(
        self,
        folder: Path,
        rules: Iterable[DebuggerRule],
        *,
        worker: Worker = ALONE,
        subscribers: Sequence[StepSubscriber] = (),
    ) -> None:
        config = HookConfig(
            folder,
            included=frozenset(
                {"losses", "weights", "biases"}
            ),  # of frozen weights nothing is known unless it is saved
            save_config=SaveConfig(SaveSchedule(interval=1)),
            reduction_config=ReductionConfig.parse("mean", save_raw_tensor=False),
            workers=Workers.ALL,
            budget=None,
        )
        audience = Audience(subscribers, wants_of(rules))
        self._recording = Recording(config, audience, worker=worker)

    def begin(self, model: nn.Module, loss: nn.Module, optimizer: torch.optim.Optimizer) -> None:  # noqa: ARG002
        self._hook = TorchHook(self._recording, finds_models=False)  # only now, as what is tuned was trained before
        self._hook.watch(model, loss=loss)

    def mode(self, mode: watch.Mode) -> None:
        self._hook.set_mode(Mode(mode))

    def record(self, name: str, tensor: torch.Tensor) -> None:
        self._hook.save_tensor(name, tensor)

    def close(self) -> None:
        self._hook.close()
