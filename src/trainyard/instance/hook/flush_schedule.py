"""When the writer thread writes its steps: soon enough for readers, and so rarely that it costs little."""

import math

from trainyard.formats.tensors.recordings.trial_writer import BATCH_STEPS

# Steps that come faster than this are written together.
MIN_DELAY_S = 0.02
MAX_DELAY_S = 1.0
# Writing takes at most this share of the time, because it takes the interpreter lock from the training.
_MAX_SHARE = 0.005
# The weight of the last observation in a running mean.
_WEIGHT = 0.125
# A batch size is kept while the steps of a delay are between these multiples of it.
_KEPT = (0.75, 2.5)


class FlushSchedule:
    """Says when pending steps are due. Times are those of one monotonic clock, in seconds.

    Batches have the same number of rows while the pace of the training stays the same, because readers read consecutive
    batches of one size as one array.
    """

    def __init__(self) -> None:
        self.pending = 0
        self._is_urgent = False
        self._batch = 1
        self._gap_s = MAX_DELAY_S
        self._flush_s = 0.0
        self._last_at, self._oldest_at = -math.inf, -math.inf

    @property
    def due_at(self) -> float:
        """When the pending steps are due if no other follows; infinity without any."""
        if not self.pending:
            return math.inf
        if self._is_urgent:
            return -math.inf
        # Longer than a batch should take, so that one is not torn by a step that is a little late.
        return self._oldest_at if self.pending >= self._batch else self._oldest_at + 2 * self._delay_s

    def add_step(self, now: float) -> None:
        self._gap_s += (min(now - self._last_at, MAX_DELAY_S) - self._gap_s) * _WEIGHT
        self._last_at = now
        if not self.pending:
            self._oldest_at = now
        self.pending += 1
        self._adapt()

    def expedite(self) -> None:
        """Make the pending steps due at once, and the one that is about to be added."""
        self._is_urgent = True

    def record_flush(self, duration_s: float) -> None:
        if self.pending:
            self._flush_s += (duration_s - self._flush_s) * _WEIGHT
        self.pending, self._is_urgent = 0, False

    @property
    def _delay_s(self) -> float:
        return min(max(self._flush_s / _MAX_SHARE, MIN_DELAY_S), MAX_DELAY_S)

    def _adapt(self) -> None:
        steps = self._delay_s / max(self._gap_s, 1e-6)
        if not _KEPT[0] * self._batch <= steps < _KEPT[1] * self._batch:
            self._batch = 1 << int(math.log2(min(max(steps, 1), BATCH_STEPS)))
