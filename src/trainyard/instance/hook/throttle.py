"""Keeps what the hook costs the training within a share of its time.

The hook has an account of time. It begins with half a second, so that the beginning of a training, where most of what
goes wrong does, is seen whole; each step pays in its share of the step's time, and what the hook did in the thread that
trains is paid from it. A step is looked at in full while the account is not overdrawn: a model whose statistics cost
ten times the budget is looked at every tenth step. A loss that is not finite, or jumps, opens the next steps on credit.

Every step costs something, looked at or not: its losses are taken, and it is written. A step that is not looked at pays
for that, but never more than half of what it brings. Otherwise small models, of whose steps of a millisecond that is
more than a hundredth, would not be looked at any more once the first half second is spent.
"""

import math
from threading import Lock

_GIFT_NS = 500_000_000
_JUMP = 8.0  # times the usual distance of a loss from its mean
_USUAL_AFTER = 20  # losses, before which none is a jump
_OPENED_STEPS = 3


class Throttle:
    """Decides which steps are looked at in full. `budget` is a share of the time; None looks at every step.

    `see_loss` and `spend_on_device` are called from the thread that writes as well.
    """

    def __init__(self, budget: float | None) -> None:
        self._budget = budget
        self._account = float(_GIFT_NS)
        self._began_ns = 0
        self._spent_ns = 0
        self._is_exempt = False
        self._is_full = True
        self._step_ns, self._full_ns = 0.0, 0.0
        self._lock = Lock()
        self._device_ns = 0
        self._opened = 0
        self._losses, self._mean, self._distance = 0, 0.0, 0.0
        self.overhead = 0.0  # the share of the time that the hook took of late

    def begin(self, now_ns: int) -> bool:
        """A step begins and the one before is settled; whether this one is looked at in full."""
        self._settle(now_ns)
        self._began_ns, self._spent_ns, self._is_exempt = now_ns, 0, False
        self._is_full = self._may_look()
        return self._is_full

    def spend(self, ns: int) -> None:
        """The thread that trains was held up for so long."""
        self._spent_ns += ns

    def spend_on_device(self, ns: int) -> None:
        """A device was."""
        with self._lock:
            self._device_ns += ns

    def exempt(self) -> None:
        """What this step costs was asked for, or comes only once: the account does not pay for it."""
        self._is_exempt = True

    def see_loss(self, loss: float) -> bool:
        """A loss that is not like those before opens the steps that come; whether this one may be looked at as well."""
        with self._lock:
            is_strange = not math.isfinite(loss) or self._is_jump(loss)
            if is_strange:
                self._opened = _OPENED_STEPS
            if math.isfinite(loss):
                self._remember(loss)
        return is_strange and self._has_credit

    def _remember(self, loss: float) -> None:
        self._losses += 1
        weight = max(0.02, 1 / self._losses)
        self._distance += weight * (abs(loss - self._mean) - self._distance)
        self._mean += weight * (loss - self._mean)

    def _is_jump(self, loss: float) -> bool:
        return self._losses >= _USUAL_AFTER and loss - self._mean > _JUMP * self._distance

    def _settle(self, now_ns: int) -> None:
        if not self._began_ns:
            return
        with self._lock:
            device_ns, self._device_ns = self._device_ns, 0
        spent = self._spent_ns + device_ns
        took = float(now_ns - self._began_ns)
        if self._step_ns:
            took = min(took, 10 * self._step_ns)  # a pause for a checkpoint earns no statistics
        self._step_ns += (0.1 if self._step_ns else 1.0) * (took - self._step_ns)
        self.overhead += 0.05 * (min(spent / max(took, 1), 1.0) - self.overhead)
        if self._is_exempt or self._budget is None:
            return
        if self._is_full:
            self._full_ns += (0.1 if self._full_ns else 1.0) * (spent - self._full_ns)
        share = self._budget * took
        account = self._account + share - (spent if self._is_full else min(spent, share / 2))
        self._account = max(min(account, _GIFT_NS), -2 * _OPENED_STEPS * self._full_ns)

    def _may_look(self) -> bool:
        if self._budget is None or self._account > 0:
            return True
        with self._lock:
            is_opened, self._opened = self._opened > 0, max(self._opened - 1, 0)
        return is_opened and self._has_credit

    @property
    def _has_credit(self) -> bool:
        return self._account > -_OPENED_STEPS * self._full_ns
