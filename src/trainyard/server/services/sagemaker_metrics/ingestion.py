"""BatchPutMetrics."""

import math
from datetime import timedelta

from trainyard.formats.run_metrics import RECORD_BYTES, RunPoint
from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import NotFound
from trainyard.server.experiments.storage import COMPONENT, entity_key
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.experiments.entities import not_found

MAX_AGE = timedelta(days=14)
MAX_AHEAD = timedelta(hours=2)

_INVALID, _TOO_MANY = "VALIDATION_ERROR", "METRIC_LIMIT_EXCEEDED"


def batch_put_metrics(call: Call, shape: Shape) -> Shape:
    """Add up to ten values to the metrics of a trial component. A value that is refused does not affect the others."""
    errors = {}
    points: list[tuple[int, RunPoint]] = []
    for number, datum in enumerate(shape["MetricData"]):
        if not call.now - MAX_AGE <= datum["Timestamp"] <= call.now + MAX_AHEAD or math.isnan(datum["Value"]):
            errors[number] = _INVALID
        else:
            micros = to_micros(datum["Timestamp"])
            points.append((number, RunPoint(datum["MetricName"], micros, datum["Value"], datum.get("Step"))))
    if points:
        has_room = _put(call, shape["TrialComponentName"], [point for _, point in points])
        errors.update({number: _TOO_MANY for (number, _), fits in zip(points, has_room, strict=True) if not fits})
    return {"Errors": [{"Code": errors[number], "MetricIndex": number} for number in sorted(errors)]} if errors else {}


OPERATIONS: Operations = {"BatchPutMetrics": batch_put_metrics}


def _put(call: Call, name: str, points: list[RunPoint]) -> list[bool]:
    yard = call.yard
    key = entity_key(call.account, COMPONENT, name)
    yard.require_space(yard.metrics, len(points) * RECORD_BYTES)
    try:
        component = yard.metric_inbox.find(yard.records, key)
        return list(
            yard.metric_inbox.put(
                yard.records,
                yard.metrics,
                component,
                points,
                account=call.account,
                site=yard.compute.site,
                now=call.now,
            )
        )
    except NotFound as error:
        yard.metric_inbox.forget(key)
        raise not_found(COMPONENT, name, region=call.region, account=call.account) from error
