from dataclasses import replace

import pytest

from tests.unit.server.services.accounts import As
from trainyard.engines.contract import Capacity, Node
from trainyard.engines.engine_set import EngineSet
from trainyard.testing.engines.simulated import SimulatedEngine


@pytest.fixture
def user(anna: As) -> As:
    """Return Anna on a yard with a second engine of one spot node."""
    jobs = anna.yard.compute.jobs
    nodes = (Node("n1", 4, 8.0, 1024**3, gpus=(0, 1), is_spot=True),)
    far = SimulatedEngine(jobs, name="far", is_here=False, capacity=Capacity(nodes))
    far.obstacle = "nobody knows"
    compute = replace(anna.yard.compute, engines=EngineSet([anna.yard.compute.engines.default, far]))
    return replace(anna, yard=replace(anna.yard, compute=compute))


def test_engines_are_listed_in_order_with_capabilities_and_nodes(user: As) -> None:
    first, second = user("trainyard", "ListEngines")["Engines"]

    assert (first["Name"], second["Name"]) == ("simulated", "far")
    able = {each["Name"]: each["Reason"] for each in first["Capabilities"]}
    assert (able["isolation"], able["isolation of several instances"], able["warm workers"]) == (None, None, None)
    assert "environments" in able["images"]
    assert second["Capabilities"][0] == {"Name": "isolation", "Reason": "nobody knows"}
    assert second["Nodes"] == [
        {"Name": "n1", "Slots": 4, "Cpus": 8.0, "MemoryBytes": 1024**3, "Gpus": [0, 1], "Spot": True}
    ]


def test_a_quote_shows_why_its_engine_cannot_start_jobs(user: As) -> None:
    (user.yard.compute.jobs.parent / "engines.toml").write_text('[[rules]]\nengine = "far"\nimage = "far*"\n')
    far = user.yard.compute.engines["far"]
    assert isinstance(far, SimulatedEngine)
    far.offered = replace(far.offered, obstacle="Nobody is there.")
    asked = {"InstanceType": "ml.m5.large", "InstanceCount": 1}
    assert user("trainyard", "QuoteJob", **asked)["Obstacle"] is None
    assert user("trainyard", "QuoteJob", **asked, Image="far:1")["Obstacle"] == "Nobody is there."


def test_rules_are_listed_with_whether_their_engines_exist(user: As) -> None:
    file = user.yard.compute.jobs.parent / "engines.toml"
    file.write_text('[[rules]]\nengine = "far"\nimage = "a*"\n\n[[rules]]\nengine = "slurm"\n')

    assert user("trainyard", "ListEngines")["Rules"] == [
        {"Engine": "far", "Conditions": ["image = a*"], "Known": True},
        {"Engine": "slurm", "Conditions": [], "Known": False},
    ]


def test_rules_that_cannot_be_read_do_not_hide_the_engines(user: As) -> None:
    (user.yard.compute.jobs.parent / "engines.toml").write_text("[[rules]")

    told = user("trainyard", "ListEngines")

    assert len(told["Engines"]) == 2
    assert "is not valid TOML" in told["RulesProblem"]
