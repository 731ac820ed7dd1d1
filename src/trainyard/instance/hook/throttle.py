"""Keeps the hook's overhead within a share of the training's time.

The hook has a time account. It starts with half a second, so that the first steps, in which most failures happen, are
all observed. Each step deposits its share of the step's time, and the time the hook spends on the training thread is
withdrawn. Steps are observed in full while the account is positive: if a model's statistics cost ten times the budget,
every tenth step is observed. A loss that is not finite, or jumps, opens the next steps on credit.

Every step costs something, observed or not: its losses are recorded, and it is written. A step that is not observed
pays for that, but never more than half of its deposit. Otherwise a small model with steps of a millisecond, for which
that is more than one percent, would never be observed again once the first half second is spent.
"""

import math
from threading import Lock

_INITIAL_BALANCE_NS = 500_000_000
# A loss this many mean absolute deviations above the mean is a jump.
_JUMP_DEVIATIONS = 8.0
# No loss counts as a jump before this many have been seen.
_MIN_LOSSES = 20
_CREDIT_STEPS = 3


class Throttle:
    """Decides which steps are observed in full. `budget` is a share of the time; None observes every step.

    `observe_loss` and `spend_on_device` are called from the writer thread as well.
    """

    def __init__(self, budget: float | None) -> None:
        self._budget = budget
        self._balance_ns = float(_INITIAL_BALANCE_NS)
        self._began_ns = 0
        self._spent_ns = 0
        self._is_exempt = False
        self._is_full = True
        self._step_ns, self._full_ns = 0.0, 0.0
        self._lock = Lock()
        self._device_ns = 0
        self._credit_steps = 0
        self._losses, self._mean, self._deviation = 0, 0.0, 0.0
        # A moving average of the share of time that the hook takes.
        self.overhead = 0.0

    def begin(self, now_ns: int) -> bool:
        """Settle the last step and begin one; return whether to observe it in full."""
        self._settle(now_ns)
        self._began_ns, self._spent_ns, self._is_exempt = now_ns, 0, False
        self._is_full = self._may_observe()
        return self._is_full

    def spend(self, ns: int) -> None:
        """Charge time that the hook spent on the training thread."""
        self._spent_ns += ns

    def spend_on_device(self, ns: int) -> None:
        """Charge time that the hook kept a device busy."""
        with self._lock:
            self._device_ns += ns

    def exempt(self) -> None:
        """Do not charge this step: its cost was asked for, or occurs only once."""
        self._is_exempt = True

    def observe_loss(self, loss: float) -> bool:
        """Open the next steps if a loss is unusual; return whether this step may be observed in full too."""
        with self._lock:
            is_unusual = not math.isfinite(loss) or self._is_jump(loss)
            if is_unusual:
                self._credit_steps = _CREDIT_STEPS
            if math.isfinite(loss):
                self._update_mean(loss)
        return is_unusual and self._has_credit

    def _update_mean(self, loss: float) -> None:
        self._losses += 1
        weight = max(0.02, 1 / self._losses)
        self._deviation += weight * (abs(loss - self._mean) - self._deviation)
        self._mean += weight * (loss - self._mean)

    def _is_jump(self, loss: float) -> bool:
        return self._losses >= _MIN_LOSSES and loss - self._mean > _JUMP_DEVIATIONS * self._deviation

    def _settle(self, now_ns: int) -> None:
        if not self._began_ns:
            return
        with self._lock:
            device_ns, self._device_ns = self._device_ns, 0
        spent = self._spent_ns + device_ns
        took = float(now_ns - self._began_ns)
        if self._step_ns:
            # A pause for a checkpoint earns no statistics.
            took = min(took, 10 * self._step_ns)
        self._step_ns += (0.1 if self._step_ns else 1.0) * (took - self._step_ns)
        self.overhead += 0.05 * (min(spent / max(took, 1), 1.0) - self.overhead)
        if self._is_exempt or self._budget is None:
            return
        if self._is_full:
            self._full_ns += (0.1 if self._full_ns else 1.0) * (spent - self._full_ns)
        share = self._budget * took
        balance = self._balance_ns + share - (spent if self._is_full else min(spent, share / 2))
        self._balance_ns = max(min(balance, _INITIAL_BALANCE_NS), -2 * _CREDIT_STEPS * self._full_ns)

    def _may_observe(self) -> bool:
        if self._budget is None or self._balance_ns > 0:
            return True
        with self._lock:
            has_credit_step, self._credit_steps = self._credit_steps > 0, max(self._credit_steps - 1, 0)
        return has_credit_step and self._has_credit

    @property
    def _has_credit(self) -> bool:
        return self._balance_ns > -_CREDIT_STEPS * self._full_ns
