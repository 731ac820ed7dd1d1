"""QuoteJob: what a job would cost and get, before there is one."""

from trainyard.engines.choosing import Wanted
from trainyard.engines.placement import Demand, Room, fit_demand
from trainyard.foundation.jobs import Share
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.assignment import engine_for, is_spread
from trainyard.server.services.sagemaker.resources import groups_of
from trainyard.server.services.trainyard.line import line_now, machine_now
from trainyard.server.services.trainyard.shares import share_shape

SECONDS_OF_AN_HOUR = 3600


def quote_job(call: Call, shape: Shape) -> Shape:
    """Price and shares of a job on this machine, without creating it."""
    workshop = call.yard.workshop
    wanted = [workshop.catalog[group.instance_type] for group in groups_of(shape) for _ in range(group.count)]
    tags = {tag["Key"]: tag["Value"] for tag in shape.get("Tags", ())}
    choice = engine_for(workshop, Wanted(shape.get("Image", ""), [each.name for each in wanted], tags))
    machine = machine_now(workshop.engines[choice.engine])
    demand = Demand(tuple(wanted), shape.get("Spot", False), is_spread(tags))
    fitted, line = fit_demand(demand, machine), line_now(call.yard, choice.engine)
    shares = Room(machine).place(demand) or [Share(size.cpus, size.memory_bytes) for size in fitted.sizes]
    price = sum(each.price_usd(is_spot=demand.is_spot) for each in wanted)
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
        "Engine": choice.engine,
        "EngineReason": choice.why,
        "Obstacle": machine.obstacle or None,
    }


OPERATIONS: Operations = {"QuoteJob": quote_job}
