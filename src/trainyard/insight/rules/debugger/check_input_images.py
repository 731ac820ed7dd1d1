"""Images that are not normalised."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainyard.formats.tensors.contract import Mode, Probe, Step, TensorInfo
from trainyard.formats.tensors.probes import CHANNEL_MEAN
from trainyard.insight.rules.contract import DebuggerRule, Evidence, Finding, Need, Parameter
from trainyard.insight.rules.readings import LOOK_BACK, Numbers, Reader

CHANNELS = 4  # red, green, blue, and how much of it can be seen


@dataclass(slots=True)
class _Seen:
    """The images of one tensor since the last look, and what the looks before have shown."""

    images: int = 0
    sums: Numbers = field(default_factory=lambda: np.zeros(CHANNELS))
    steps: list[int] = field(default_factory=list)
    means: list[float] = field(default_factory=list)

    def look(self, step: int) -> tuple[int, float]:
        """The channel whose mean is furthest from 0, and that mean; what follows is of the next look."""
        means = self.sums / self.images
        channel = int(np.nanargmax(np.abs(means))) if np.isfinite(means).any() else 0
        self.images, self.sums = 0, np.zeros(CHANNELS)
        self.steps, self.means = [*self.steps, step][-LOOK_BACK:], [*self.means, float(means[channel])][-LOOK_BACK:]
        return channel, float(means[channel])


class CheckInputImages(DebuggerRule):
    """Finds images whose channels do not have a mean of about zero."""

    name = "CheckInputImages"
    parameters = (
        Parameter("threshold_mean", float, 0.2, "How far from 0 the mean of a channel may be.", at_least=0),
        Parameter("threshold_samples", int, 500, "How many images make a look.", at_least=1),
        Parameter(
            "regex",
            tuple,
            (".*hybridsequential0_input_0",),
            "The images that a model is given.",
            advised=(r"^[A-Z]\w*(?<!Loss)_input_0$",),
        ),
        Parameter("channel", int, 1, "Along which axis of a batch its channels lie.", at_least=1, at_most=4),
    )

    def __init__(self, *, threshold_mean: float, threshold_samples: int, regex: tuple[str, ...], channel: int) -> None:
        self._threshold, self._samples, self._regexes = threshold_mean, threshold_samples, regex
        self._probes = tuple(Probe(CHANNEL_MEAN, (float(channel), float(number))) for number in range(CHANNELS))
        self._reader = Reader(self.needs, _are_images)
        self._seen: dict[tuple[str, Mode, str], _Seen] = {}

    @property
    def needs(self) -> Need:
        return Need(regexes=self._regexes, probes=self._probes)

    def check(self, step: Step) -> Iterator[Finding]:
        reading = self._reader.read(step)
        means = np.array([reading.measured(probe) for probe in self._probes]).T
        for tensor, row in zip(reading.tensors, means, strict=True):
            if not np.isfinite(row).any():
                continue
            seen = self._seen.setdefault((step.worker, step.mode, tensor.name), _Seen())
            seen.images += tensor.shape[0]
            seen.sums = seen.sums + tensor.shape[0] * row
            if seen.images >= self._samples:
                yield from self._judge(step, tensor, seen)

    def _judge(self, step: Step, tensor: TensorInfo, seen: _Seen) -> Iterator[Finding]:
        images = seen.images
        channel, mean = seen.look(step.number)
        if not abs(mean) > self._threshold:
            return
        yield Finding.at(
            step,
            tensor,
            f"Channel {channel} of the last {images} images in {tensor.name} has a mean of {mean:.3g}, further from 0 "
            f"than {self._threshold:g}.",
            value=mean,
            threshold=self._threshold,
            evidence=(Evidence("mean of the channel furthest from 0", tuple(seen.steps), tuple(seen.means)),),
        )


def _are_images(tensor: TensorInfo) -> bool:
    return len(tensor.shape) > 3
