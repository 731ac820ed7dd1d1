"""QuoteJob: what a job would cost and get, before there is one."""

from trainyard.engines.placement import fit
from trainyard.foundation.jobs import Share
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.resources import groups_of
from trainyard.server.services.trainyard.line import line_of
from trainyard.server.services.trainyard.shares import share_shape

SECONDS_OF_AN_HOUR = 3600


def quote_job(call: Call, shape: Shape) -> Shape:
    """Price and shares of a job on this machine, without creating it."""
    workshop = call.yard.workshop
    wanted = [workshop.catalog[group.instance_type] for group in groups_of(shape) for _ in range(group.count)]
    machine = workshop.engines.first.capacity()
    fitted, line = fit(wanted, machine), line_of(call.yard.records)
    gpus = iter(machine.gpus)
    shares = [Share(size.cpus, size.memory_bytes, tuple(next(gpus) for _ in range(size.gpus))) for size in fitted.sizes]
    price = sum(each.price_usd(is_spot=shape.get("Spot", False)) for each in wanted)
    given = enumerate(zip(wanted, shares, strict=True), 1)
    longest_s = shape.get("MaxRuntimeInSeconds")
    return {
        "PricePerHour": price,
        "MostCost": price * longest_s / SECONDS_OF_AN_HOUR if longest_s else None,
        "Currency": "USD",
        "Shares": [share_shape(f"algo-{number}", each.name, share=share) for number, (each, share) in given],
        "Notes": list(fitted.shortfalls),
        "FreeSlots": max(0, machine.slots - line.instances),
        "QueuedJobs": line.waiting,
    }


OPERATIONS: Operations = {"QuoteJob": quote_job}
