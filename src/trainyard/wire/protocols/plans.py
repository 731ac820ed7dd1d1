"""What a codec has compiled, by operation."""

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from botocore.model import OperationModel

P = TypeVar("P")


class Plans(Generic[P]):
    """Compiles the plan of an operation on first use, one at a time, and keeps it. Safe to share between threads."""

    def __init__(self, compile_plan: "Callable[[OperationModel], P]") -> None:
        self._compile = compile_plan
        self._lock = Lock()
        self._plans: dict[OperationModel, P] = {}

    def of(self, operation: "OperationModel") -> P:
        plan = self._plans.get(operation)
        if plan is None:
            with self._lock:
                plan = self._plans[operation] = self._compile(operation)
        return plan
