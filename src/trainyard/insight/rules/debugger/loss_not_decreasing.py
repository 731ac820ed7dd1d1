"""Losses that do not fall."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Mode, Step, TensorInfo
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter
from trainyard.insight.rules.parameters import COLLECTION_NAMES, TENSOR_REGEX
from trainyard.insight.rules.readings import Reader, Track


@dataclass(frozen=True, slots=True)
class _Loss:
    """The mean of consecutive losses, and the step of the last one."""

    step: int
    value: float


@dataclass(slots=True)
class _LossWindow:
    """The recent values of one loss, and the reference that the next is compared with."""

    recent: deque[float]
    reference: _Loss | None = None
    track: Track = field(default_factory=Track)

    def add(self, step: int, value: float) -> _Loss | None:
        """Add a loss and return the mean of the last ones, once there are enough."""
        self.recent.append(value)
        if len(self.recent) < (self.recent.maxlen or 1):
            return None
        now = _Loss(step, float(np.mean(self.recent)))
        self.track.add(step, now.value)
        return now


class LossNotDecreasing(DebuggerRule):
    """Finds losses that fall too little from one check to the next."""

    name = "LossNotDecreasing"
    parameters = (
        COLLECTION_NAMES,
        TENSOR_REGEX,
        Parameter("use_losses_collection", bool, True, "Whether the collection losses is checked too."),
        Parameter("num_steps", int, 10, "The minimum number of steps between two checks.", advised=100, at_least=1),
        Parameter("diff_percent", float, 0.1, "By how many percent the loss must fall.", advised=1.0, at_least=0),
        Parameter(
            "increase_threshold_percent",
            float,
            5.0,
            "By how many percent it may rise instead.",
            advised=0.0,
            at_least=0,
        ),
        Parameter("mode", str, "GLOBAL", "The mode of the steps to check.", advised="TRAIN", choices=tuple(Mode)),
        Parameter("window", int, 1, "How many consecutive losses are averaged for a check.", advised=50, at_least=1),
        Parameter(
            "since_start", bool, False, "Compare with the first check instead of the previous one.", advised=True
        ),
    )

    def __init__(
        self,
        *,
        collection_names: tuple[str, ...] | None,
        tensor_regex: tuple[str, ...] | None,
        use_losses_collection: bool,
        num_steps: int,
        diff_percent: float,
        increase_threshold_percent: float,
        mode: str,
        window: int,
        since_start: bool,
    ) -> None:
        collections = (*(collection_names or ()), *(("losses",) if use_losses_collection else ()))
        if not collections and not tensor_regex:
            raise InvalidRequest(
                'Rule LossNotDecreasing has no loss to check; set "collection_names" or "tensor_regex", or leave '
                '"use_losses_collection" as it is.'
            )
        self._needs = Need(collections=collections, regexes=tensor_regex or ())
        self._reader = Reader(self._needs)
        self._mode, self._num_steps, self._window, self._since_start = Mode(mode), num_steps, window, since_start
        self._fall, self._rise = diff_percent, increase_threshold_percent
        self._windows: dict[tuple[str, str], _LossWindow] = {}

    @property
    def needs(self) -> Need:
        return self._needs

    def check(self, step: Step) -> Iterator[Finding]:
        if self._mode not in (step.mode, Mode.GLOBAL):
            return
        reading = self._reader.read(step)
        for tensor, value in zip(reading.tensors, reading.values(), strict=True):
            if np.isfinite(value):
                yield from self._check_loss(step, tensor, value=float(value))

    def _check_loss(self, step: Step, tensor: TensorInfo, *, value: float) -> Iterator[Finding]:
        window = self._windows.setdefault((step.worker, tensor.name), _LossWindow(deque(maxlen=self._window)))
        now = window.add(step.number if self._mode is Mode.GLOBAL else step.mode_step, value)
        if now is None:
            return
        before = window.reference
        if before is None:
            window.reference = now
            return
        if now.step - before.step < self._num_steps + self._window - 1:
            return
        change = 100 * (now.value - before.value) / max(abs(before.value), 1e-12)
        if -self._fall < change <= 0 or change > self._rise:
            evidence = window.track.evidence("loss")
            yield self._finding(step, tensor, losses=(before, now), change=change, evidence=evidence)
        window.reference = before if self._since_start else now

    def _finding(
        self, step: Step, tensor: TensorInfo, *, losses: tuple[_Loss, _Loss], change: float, evidence: Evidence
    ) -> Finding:
        before, now = losses
        limit = self._rise if change > 0 else -self._fall
        wanted = f"may rise by {self._rise:g} % at most" if change > 0 else f"must fall by {self._fall:g} % at least"
        return Finding.at(
            step,
            tensor,
            f"The loss {tensor.name} went from {before.value:.4g} at step {before.step} to {now.value:.4g} at step "
            f"{now.step}, by {change:+.2g} %; it {wanted}.",
            value=change,
            threshold=limit,
            evidence=(evidence,),
        )
