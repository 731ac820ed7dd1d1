from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trainyard.wire.models import Models
from trainyard.wire.protocols.contract import PlanCache


def test_a_plan_is_compiled_once_and_cached(models: Models) -> None:
    compiled: list[Any] = []
    plans: PlanCache[str] = PlanCache(lambda operation: compiled.append(operation) or operation.name)  # type: ignore[func-returns-value]
    operation = models.service("sts").operation_model("AssumeRole")
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda _: plans.of(operation), range(64))) == {"AssumeRole"}
    assert compiled == [operation]
