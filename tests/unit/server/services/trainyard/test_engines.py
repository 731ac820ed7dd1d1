from dataclasses import replace

import pytest

from tests.unit.server.services.accounts import As
from trainyard.engines.contract import Capacity, Node
from trainyard.engines.several import Engines
from trainyard.testing.engines.simulated import SimulatedEngine


@pytest.fixture
def user(anna: As) -> As:
    """Anna, on a yard with a second engine of one spot node."""
    jobs = anna.yard.workshop.jobs
    nodes = (Node("n1", 4, 8.0, 1024**3, gpus=(0, 1), is_spot=True),)
    far = SimulatedEngine(jobs, name="far", is_here=False, capacity=Capacity(nodes))
    far.obstacle = "nobody knows"
    workshop = replace(anna.yard.workshop, engines=Engines([anna.yard.workshop.engines.first, far]))
    return replace(anna, yard=replace(anna.yard, workshop=workshop))


def test_engines_are_listed_in_their_order_with_what_they_do_and_have(user: As) -> None:
    first, second = user("trainyard", "ListEngines")["Engines"]

    assert (first["Name"], second["Name"]) == ("simulated", "far")
    able = {each["Name"]: each["Reason"] for each in first["Capabilities"]}
    assert (able["isolation"], able["isolation of several instances"], able["warm workers"]) == (None, None, None)
    assert "environments" in able["images"]
    assert second["Capabilities"][0] == {"Name": "isolation", "Reason": "nobody knows"}
    assert second["Nodes"] == [
        {"Name": "n1", "Slots": 4, "Cpus": 8.0, "MemoryBytes": 1024**3, "Gpus": [0, 1], "Spot": True}
    ]


def test_a_quote_says_what_keeps_its_engine_from_starting_it(user: As) -> None:
    (user.yard.workshop.jobs.parent / "engines.toml").write_text('[[rules]]\nengine = "far"\nimage = "far*"\n')
    far = user.yard.workshop.engines["far"]
    assert isinstance(far, SimulatedEngine)
    far.offered = replace(far.offered, obstacle="Nobody is there.")
    asked = {"InstanceType": "ml.m5.large", "InstanceCount": 1}
    assert user("trainyard", "QuoteJob", **asked)["Obstacle"] is None
    assert user("trainyard", "QuoteJob", **asked, Image="far:1")["Obstacle"] == "Nobody is there."


def test_rules_are_told_with_whether_the_yard_has_their_engines(user: As) -> None:
    file = user.yard.workshop.jobs.parent / "engines.toml"
    file.write_text('[[rules]]\nengine = "far"\nimage = "a*"\n\n[[rules]]\nengine = "slurm"\n')

    assert user("trainyard", "ListEngines")["Rules"] == [
        {"Engine": "far", "Conditions": ["image = a*"], "Known": True},
        {"Engine": "slurm", "Conditions": [], "Known": False},
    ]


def test_rules_that_cannot_be_read_do_not_hide_the_engines(user: As) -> None:
    (user.yard.workshop.jobs.parent / "engines.toml").write_text("[[rules]")

    told = user("trainyard", "ListEngines")

    assert len(told["Engines"]) == 2
    assert "is not valid TOML" in told["RulesProblem"]
