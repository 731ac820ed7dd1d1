"""DescribeSpot: what spot jobs have come to, and what they saved."""

from math import fsum

from trainyard.engines.catalog import Catalog
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.spot import ALL, SpotUse, spot_uses

SECONDS_OF_AN_HOUR = 3600


def describe_spot(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - it has no members
    """Sums of the spot jobs that have ended: all for an administrator, for others their own."""
    account = None if call.caller.is_admin else call.account
    found = spot_uses(call.yard.records.counters(account))
    catalog = call.yard.workshop.catalog
    types = [(use, _saved(use, catalog)) for use in found if use.instance_type != ALL]
    total = next((use for use in found if use.instance_type == ALL), SpotUse(ALL))
    return {
        "Types": [_use(use, saved) for use, saved in types],
        "Total": _use(total, fsum(saved for _, saved in types)),
        "Currency": "USD",
    }


OPERATIONS: Operations = {"DescribeSpot": describe_spot}


def _use(use: SpotUse, saved: float) -> Shape:
    return {
        "InstanceType": use.instance_type,
        "Jobs": use.jobs,
        "Interruptions": use.interruptions,
        "MedianResumeInSeconds": use.median_resume_s,
        "WorstResumeInSeconds": use.worst_resume_s,
        "TrainingTimeInSeconds": use.trained_s,
        "BillableTimeInSeconds": use.billed_s,
        "SavingInPercent": 100 * (1 - use.billed_s / use.trained_s) if use.trained_s else None,
        "Saved": saved,
    }


def _saved(use: SpotUse, catalog: Catalog) -> float:
    """At the prices of today; nothing for a type that the catalog no longer has."""
    try:
        price = catalog[use.instance_type].price_usd(is_spot=False)
    except InvalidRequest:
        return 0.0
    return price * (use.trained_instance_s - use.billed_instance_s) / SECONDS_OF_AN_HOUR
