"""QuoteJob and DescribeSpot: what a job would cost and get, and what spot jobs saved."""

from math import fsum

from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import Engine
from trainyard.engines.placement import Demand, FreeResources, fit_demand
from trainyard.engines.selection import SelectionRequest
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.jobs.spot import ALL, SpotUse, spot_uses
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.training.engine_assignment import (
    is_spread,
    notes_on_image,
    require_image,
    select_job_engine,
)
from trainyard.server.services.sagemaker.training.instances import groups_of
from trainyard.server.services.trainyard.queues import current_capacity, load_queue, share_shape

SECONDS_PER_HOUR = 3600


def quote_job(call: Call, shape: Shape) -> Shape:
    """Return the price and the shares of a job without creating it."""
    compute = call.yard.compute
    types = [compute.catalog[group.instance_type] for group in groups_of(shape) for _ in range(group.count)]
    tags = {tag["Key"]: tag["Value"] for tag in shape.get("Tags", ())}
    image = shape.get("Image") or compute.images.default_image()
    selection = select_job_engine(compute, SelectionRequest(image, [each.name for each in types], tags))
    capacity = current_capacity(compute.engines[selection.engine])
    demand = Demand(tuple(types), shape.get("Spot", False), is_spread(tags))
    fitted, queue = fit_demand(demand, capacity), load_queue(call.yard, selection.engine)
    shares = FreeResources(capacity).place(demand) or [Share(size.cpus, size.memory_bytes) for size in fitted.sizes]
    price = sum(each.price_usd(is_spot=demand.is_spot) for each in types)
    numbered = enumerate(zip(types, shares, strict=True), 1)
    max_runtime_s = shape.get("MaxRuntimeInSeconds")
    image_notes, image_obstacle = _check_image(call, image, engine=compute.engines[selection.engine])
    return {
        "PricePerHour": price,
        "MostCost": price * max_runtime_s / SECONDS_PER_HOUR if max_runtime_s else None,
        "PriceIsSet": any(each.has_set_price for each in types),
        "Currency": "USD",
        "Shares": [share_shape(f"algo-{number}", each.name, share=share) for number, (each, share) in numbered],
        "Notes": list(fitted.shortfalls),
        "Image": image,
        "ImageNotes": list(image_notes),
        "ImageObstacle": image_obstacle or None,
        "FreeSlots": max(0, capacity.slots - queue.instances),
        "QueuedJobs": queue.waiting,
        "Engine": selection.engine,
        "EngineReason": selection.why,
        "Obstacle": capacity.obstacle or None,
    }


def _check_image(call: Call, image: str, *, engine: Engine) -> tuple[tuple[str, ...], str]:
    """Return notes on the environment that an image maps to, and why the creation of a job would refuse the image."""
    try:
        notes = notes_on_image(call.yard.compute, image, engine=engine)
        require_image(call.yard.compute, image, account=call.account)
    except InvalidRequest as error:
        # A quote also serves to look at engines, so it is no error here.
        return (), error.message
    return notes, ""


def describe_spot(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - the request has no members
    """Sum up the ended spot jobs: all for an administrator, for others their own."""
    account = None if call.caller.is_admin else call.account
    found = spot_uses(call.yard.records.counters(account))
    catalog = call.yard.compute.catalog
    types = [(use, _saving(use, catalog)) for use in found if use.instance_type != ALL]
    total = next((use for use in found if use.instance_type == ALL), SpotUse(ALL))
    return {
        "Types": [_use(use, saved) for use, saved in types],
        "Total": _use(total, fsum(saved for _, saved in types)),
        "Currency": "USD",
        "PriceIsSet": any(each.has_set_price for each in catalog),
    }


OPERATIONS: Operations = {
    "QuoteJob": quote_job,
    "DescribeSpot": describe_spot,
}


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


def _saving(use: SpotUse, catalog: Catalog) -> float:
    """Return the saving at today's prices; 0 for a type that the catalog no longer has."""
    try:
        price = catalog[use.instance_type].price_usd(is_spot=False)
    except InvalidRequest:
        return 0.0
    return price * (use.trained_instance_s - use.billed_instance_s) / SECONDS_PER_HOUR
