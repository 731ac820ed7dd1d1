"""Images that are not normalised."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Mode, Probe, Step, TensorInfo
from trainyard.formats.tensors.statistics.probes import CHANNEL_MEAN
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter
from trainyard.insight.rules.readings import EVIDENCE_STEPS, Numbers, Reader

# Red, green, blue and alpha.
CHANNELS = 4


@dataclass(slots=True)
class _ImageWindow:
    """The images of one tensor since the last check, and the results of earlier checks."""

    images: int = 0
    sums: Numbers = field(default_factory=lambda: np.zeros(CHANNELS))
    steps: list[int] = field(default_factory=list)
    means: list[float] = field(default_factory=list)

    def close(self, step: int) -> tuple[int, float]:
        """Return the channel whose mean is furthest from 0, and that mean; start the next window."""
        means = self.sums / self.images
        channel = int(np.nanargmax(np.abs(means))) if np.isfinite(means).any() else 0
        self.images, self.sums = 0, np.zeros(CHANNELS)
        self.steps, self.means = (
            [*self.steps, step][-EVIDENCE_STEPS:],
            [*self.means, float(means[channel])][-EVIDENCE_STEPS:],
        )
        return channel, float(means[channel])


class CheckInputImages(DebuggerRule):
    """Finds images whose channels do not have a mean of about zero."""

    name = "CheckInputImages"
    parameters = (
        Parameter("threshold_mean", float, 0.2, "How far from 0 the mean of a channel may be.", at_least=0),
        Parameter("threshold_samples", int, 500, "How many images make up a check.", at_least=1),
        Parameter(
            "regex",
            tuple,
            (".*hybridsequential0_input_0",),
            "The input images of a model.",
            advised=(r"^[A-Z]\w*(?<!Loss)_input_0$",),
        ),
        Parameter("channel", int, 1, "The axis of the channels in a batch.", at_least=1, at_most=4),
    )

    def __init__(self, *, threshold_mean: float, threshold_samples: int, regex: tuple[str, ...], channel: int) -> None:
        self._threshold, self._samples, self._regexes = threshold_mean, threshold_samples, regex
        self._probes = tuple(Probe(CHANNEL_MEAN, (float(channel), float(number))) for number in range(CHANNELS))
        self._reader = Reader(self.needs, _are_images)
        self._window: dict[tuple[str, Mode, str], _ImageWindow] = {}

    @property
    def needs(self) -> Need:
        return Need(regexes=self._regexes, probes=self._probes)

    def check(self, step: Step) -> Iterator[Finding]:
        reading = self._reader.read(step)
        means = np.array([reading.measure(probe) for probe in self._probes]).T
        for tensor, row in zip(reading.tensors, means, strict=True):
            if not np.isfinite(row).any():
                continue
            window = self._window.setdefault((step.worker, step.mode, tensor.name), _ImageWindow())
            window.images += tensor.shape[0]
            window.sums = window.sums + tensor.shape[0] * row
            if window.images >= self._samples:
                yield from self._check_window(step, tensor, window)

    def _check_window(self, step: Step, tensor: TensorInfo, window: _ImageWindow) -> Iterator[Finding]:
        images = window.images
        channel, mean = window.close(step.number)
        if not abs(mean) > self._threshold:
            return
        yield Finding.at(
            step,
            tensor,
            f"Channel {channel} of the last {images} images in {tensor.name} has a mean of {mean:.3g}, further from 0 "
            f"than {self._threshold:g}.",
            value=mean,
            threshold=self._threshold,
            evidence=(Evidence("mean of the channel furthest from 0", tuple(window.steps), tuple(window.means)),),
        )


def _are_images(tensor: TensorInfo) -> bool:
    return len(tensor.shape) > 3
