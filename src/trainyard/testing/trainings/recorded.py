"""Records trainings with the real hook, and evaluates rules on them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from trainyard.formats.tensors.contract import Mode, Step, StepSubscriber
from trainyard.formats.tensors.recordings.arrow_recording import ArrowRecording
from trainyard.foundation.sources import FolderSource
from trainyard.insight.rules.contract import ComparesRuns, DebuggerRule, Evaluation, StepsOf
from trainyard.insight.rules.evaluation import RuleEvaluator
from trainyard.instance.hook.configuration import HookConfig, Workers
from trainyard.instance.hook.contract import HookContext, TensorRequest
from trainyard.instance.hook.pytorch.torch_hook import TorchHook
from trainyard.instance.hook.recording import HookRecording
from trainyard.instance.hook.save_config import ReductionConfig, SaveConfig, SaveSchedule
from trainyard.instance.hook.worker import WorkerRank
from trainyard.instance.hook.xgboost import XGBOOST, BoosterCallback
from trainyard.instance.rule_evaluation.folders import JoinedFolders
from trainyard.instance.rule_evaluation.main import evaluate_recording
from trainyard.testing.trainings import training_loop
from trainyard.testing.trainings.boosting import BoostedTraining, Boosting
from trainyard.testing.trainings.replicas import train_replicas
from trainyard.testing.trainings.training import SampleTraining

SINGLE_WORKER = WorkerRank()
BOOSTED_COLLECTIONS = frozenset({"metrics", "feature_importance", "predictions", "labels", "hyperparameters", "trees"})


def record(training: SampleTraining, seed: int, *, folder: Path, rules: Iterable[DebuggerRule]) -> None:
    """Run a training with a hook that records what the rules need at every step, without a budget."""
    watch = HookWatch(folder, rules)
    training.run(seed, watch=watch)
    watch.close()


def record_replicas(ranks: Sequence[SampleTraining], seed: int, *, folder: Path, rules: Sequence[DebuggerRule]) -> None:
    """Run replicas of a training, each with its own hook."""
    watches = [HookWatch(folder, rules, worker=WorkerRank(rank, len(ranks))) for rank in range(len(ranks))]
    train_replicas(ranks, seed, watches=watches)
    for each in watches:
        each.close()


def record_boosted(training: BoostedTraining, seed: int, *, folder: Path, rules: Iterable[DebuggerRule]) -> None:
    """Run a boosted training with the XGBoost hook, which saves every round."""
    config = HookConfig(
        folder,
        collections=XGBOOST.collections,
        included=BOOSTED_COLLECTIONS,
        save_config=SaveConfig(SaveSchedule(interval=1)),
        budget=None,
    )
    recording = HookRecording(config, HookContext(requests=requests_of(rules)), worker=SINGLE_WORKER)

    def make_callback(boosting: Boosting, training: Any, validation: Any) -> BoosterCallback:
        given = {"hyperparameters": boosting.parameters, "train_data": training, "validation_data": validation}
        return BoosterCallback(recording, **given)

    training.run(seed, make_callback=make_callback)
    recording.close()


def evaluate_rules(
    folder: Path, rules: Mapping[str, DebuggerRule], *, other: Path | None = None
) -> Sequence[Evaluation]:
    """Evaluate rules on a recorded run. Rules that compare runs get the other one."""
    for rule in rules.values():
        if isinstance(rule, ComparesRuns) and other is not None:
            rule.compare_with(dict.fromkeys(rule.needs.other_runs, make_step_lookup(other)))
    judging = RuleEvaluator(rules)
    evaluate_recording(JoinedFolders([folder]), judging)
    return judging.evaluations


def make_step_lookup(folder: Path) -> StepsOf:
    """Return a function that finds steps of a recorded run."""
    recording = ArrowRecording(FolderSource(folder))
    recording.refresh()

    def find(worker: str, number: int) -> Step | None:
        known = recording.workers.get(worker)
        row = int(np.searchsorted(known.index.numbers, number)) if known is not None else 0
        if known is None or row >= len(known.index) or known.index.numbers[row] != number:
            return None
        return known.step(row)

    return find


def requests_of(rules: Iterable[DebuggerRule]) -> list[TensorRequest]:
    """Return the tensors that the rules need from a hook."""
    needs = [part for rule in rules for part in rule.needs.parts]
    return [TensorRequest(need.collections, need.regexes, need.probes) for need in needs]


class HookWatch:
    """A watch that passes everything to a hook."""

    def __init__(
        self,
        folder: Path,
        rules: Iterable[DebuggerRule],
        *,
        worker: WorkerRank = SINGLE_WORKER,
        subscribers: Sequence[StepSubscriber] = (),
    ) -> None:
        config = HookConfig(
            folder,
            # Frozen weights are recorded only if they are saved.
            included=frozenset({"losses", "weights", "biases"}),
            save_config=SaveConfig(SaveSchedule(interval=1)),
            reduction_config=ReductionConfig.parse("mean", save_raw_tensor=False),
            workers=Workers.ALL,
            budget=None,
        )
        context = HookContext(subscribers, requests_of(rules))
        self._recording = HookRecording(config, context, worker=worker)

    def begin(self, model: nn.Module, loss: nn.Module, optimizer: torch.optim.Optimizer) -> None:  # noqa: ARG002
        # Not earlier, because a training that fine-tunes a model pretrains it first.
        self._hook = TorchHook(self._recording, finds_models=False)
        self._hook.watch(model, loss=loss)

    def mode(self, mode: training_loop.Mode) -> None:
        self._hook.set_mode(Mode(mode))

    def record(self, name: str, tensor: torch.Tensor) -> None:
        self._hook.save_tensor(name, tensor)

    def close(self) -> None:
        self._hook.close()
