"""QuoteJob: what a job would cost and get, before there is one."""

from trainyard.engines.placement import fit
from trainyard.foundation.jobs import Share
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.trainyard.line import line_of
from trainyard.server.services.trainyard.shares import share_shape

SECONDS_OF_AN_HOUR = 3600


def quote_job(call: Call, shape: Shape) -> Shape:
    """Price and shares of a job on this machine, without creating it."""
    workshop, count = call.yard.workshop, shape["InstanceCount"]
    wanted, machine = workshop.catalog[shape["InstanceType"]], workshop.engine.capacity()
    fitted, line = fit([wanted] * count, machine), line_of(call.yard.records)
    gpus = iter(machine.gpus)
    shares = [Share(size.cpus, size.memory_bytes, tuple(next(gpus) for _ in range(size.gpus))) for size in fitted.sizes]
    price = wanted.price_usd(is_spot=shape.get("Spot", False)) * count
    longest_s = shape.get("MaxRuntimeInSeconds")
    return {
        "PricePerHour": price,
        "MostCost": price * longest_s / SECONDS_OF_AN_HOUR if longest_s else None,
        "Currency": "USD",
        "Shares": [share_shape(f"algo-{number}", wanted.name, share=share) for number, share in enumerate(shares, 1)],
        "Notes": list(fitted.shortfalls),
        "FreeSlots": max(0, machine.slots - line.instances),
        "QueuedJobs": line.waiting,
    }


OPERATIONS: Operations = {"QuoteJob": quote_job}
