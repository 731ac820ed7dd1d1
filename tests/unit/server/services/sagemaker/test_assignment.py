from dataclasses import replace
from typing import Any

import pytest

from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.requests import IMAGE, create
from trainyard.engines.contract import Capabilities, Capacity, Node
from trainyard.engines.several import Engines
from trainyard.foundation.jobs import TrainingJob
from trainyard.server.jobs import KIND, job_of
from trainyard.server.records.contract import ResourceKey
from trainyard.testing.engines.simulated import SimulatedEngine
from trainyard.wire.fault import Fault

GIB = 1024**3


@pytest.fixture
def far(anna: As) -> SimulatedEngine:
    """An engine of two nodes elsewhere, which runs images."""
    nodes = (Node("n1", 4, 8.0, 32 * GIB, gpus=(0, 1)), Node("n2", 4, 8.0, 32 * GIB))
    engine = SimulatedEngine(anna.yard.workshop.jobs, name="far", is_here=False, capacity=Capacity(nodes))
    engine.able = Capabilities(images="")
    return engine


@pytest.fixture
def here(anna: As) -> SimulatedEngine:
    engine = SimulatedEngine(anna.yard.workshop.jobs, name="here")
    engine.able = Capabilities(images="it runs none")
    return engine


@pytest.fixture
def user(anna: As, here: SimulatedEngine, far: SimulatedEngine) -> As:
    """Anna, on a yard whose engines are `here` and `far`; only the second runs images."""
    workshop = replace(anna.yard.workshop, engines=Engines([here, far]))
    return replace(anna, yard=replace(anna.yard, workshop=workshop))


def sent_to(engine: str) -> dict[str, Any]:
    return {"Tags": [{"Key": "trainyard:engine", "Value": engine}]}


def resources(instance_type: str = "ml.m5.large", count: int = 1, **changed: Any) -> dict[str, Any]:
    return {"ResourceConfig": {"InstanceType": instance_type, "InstanceCount": count, "VolumeSizeInGB": 1, **changed}}


def algorithm(image: str, **changed: Any) -> dict[str, Any]:
    return {"AlgorithmSpecification": {"TrainingImage": image, "TrainingInputMode": "File", **changed}}


def job(user: As, name: str = "mnist") -> TrainingJob:
    return job_of(user.yard.records.load(ResourceKey(user.account, KIND, name)))


def test_a_job_remembers_the_engine_that_was_chosen_for_it(user: As) -> None:
    create(user, "first")
    create(user, "second", **sent_to("far"))

    assert (job(user, "first").plan.engine, job(user, "second").plan.engine) == ("here", "far")


def test_a_rule_of_the_home_folder_sends_jobs_to_an_engine(user: As) -> None:
    rules = user.yard.workshop.jobs.parent / "engines.toml"
    rules.write_text('[[rules]]\nengine = "far"\ninstance_type = "ml.p4d.*"\n')

    create(user, "large", **resources("ml.p4d.24xlarge"))
    create(user, "small")

    assert (job(user, "large").plan.engine, job(user, "small").plan.engine) == ("far", "here")


def test_an_engine_that_the_yard_does_not_have_is_refused_with_those_it_has(user: As) -> None:
    with pytest.raises(
        Fault, match='the engine "slurm", because its tag trainyard:engine names it; this yard has here'
    ):
        create(user, **sent_to("slurm"))


def test_what_a_type_lacks_is_said_of_the_engine_of_the_job(user: As) -> None:
    create(user, "here", **resources("ml.p3.8xlarge"))
    create(user, "far", **resources("ml.p3.8xlarge"), **sent_to("far"))

    assert any("none of 4 GPUs" in note for note in job(user, "here").notes)
    assert any("2 of 4 GPUs" in note for note in job(user, "far").notes)


def test_a_job_for_an_engine_without_nodes_is_told_that_it_waits(user: As, far: SimulatedEngine) -> None:
    far.offered = Capacity(())

    create(user, **sent_to("far"))

    assert "When the job was created, its engine far had no node for it; it waits for one." in job(user).notes


def test_a_job_for_an_engine_that_cannot_be_reached_is_told_why_it_waits(user: As, far: SimulatedEngine) -> None:
    far.offered = replace(far.offered, obstacle="The cluster does not answer.")

    create(user, **sent_to("far"))

    assert (
        "When the job was created, its engine far could place nothing: The cluster does not answer." in job(user).notes
    )


def test_an_image_without_a_python_goes_to_the_engine_that_runs_images_as_it_is(user: As) -> None:
    create(user, HyperParameters=None, **algorithm("mine:1", ContainerArguments=["fit", "--fast"]))

    plan = job(user).plan
    assert (plan.engine, plan.image, plan.arguments) == ("far", "mine:1", ("fit", "--fast"))


def test_an_image_that_must_run_is_refused_on_an_engine_that_runs_none(user: As) -> None:
    with pytest.raises(Fault, match="must really run, but the job goes to the engine here, and it runs none"):
        create(user, **algorithm("mine:1"), **sent_to("here"))


def test_isolation_is_asked_of_the_engine_of_the_job(user: As, far: SimulatedEngine) -> None:
    far.obstacle = "its instances lie on several machines"

    with pytest.raises(Fault, match="cannot be had on the engine far, because its instances lie on several machines"):
        create(user, EnableNetworkIsolation=True, **sent_to("far"))
    create(user, EnableNetworkIsolation=True)


def test_encryption_between_machines_is_refused_for_another_reason_than_on_one(user: As) -> None:
    encrypted = {"EnableInterContainerTrafficEncryption": True, **resources(count=2)}
    with pytest.raises(Fault, match="on the engine far: traffic between the machines of a job is not encrypted"):
        create(user, **encrypted, **sent_to("far"))
    with pytest.raises(Fault, match="never leaves the kernel"):
        create(user, **encrypted)


def test_a_warm_pool_is_refused_where_nothing_is_kept_warm(user: As, far: SimulatedEngine) -> None:
    far.able = Capabilities(warm_workers="each program has a container of its own", images="")

    with pytest.raises(Fault, match="KeepAlivePeriodInSeconds cannot be had on the engine far, because each program"):
        create(user, **resources(KeepAlivePeriodInSeconds=60), **sent_to("far"))
    create(user, **sent_to("far"))
    kept = {"KeepAlivePeriodInSeconds": 60}
    with pytest.raises(Fault, match="cannot be had on the engine far"):
        user("sagemaker", "UpdateTrainingJob", TrainingJobName="mnist", ResourceConfig=kept)


def test_gpus_are_refused_where_an_engine_has_them_and_cannot_give_them(user: As, far: SimulatedEngine) -> None:
    far.able = Capabilities(gpus="the nodes lack a driver", images="")

    with pytest.raises(
        Fault, match=r"ml\.p3\.2xlarge has GPUs, which the engine far cannot give, because the nodes lack"
    ):
        create(user, **resources("ml.p3.2xlarge"), **sent_to("far"))
    create(user, **sent_to("far"))


def test_a_quote_tells_the_engine_and_why(user: As) -> None:
    asked = {"InstanceType": "ml.m5.large", "InstanceCount": 1}

    plain = user("trainyard", "QuoteJob", **asked)
    tagged = user("trainyard", "QuoteJob", **asked, Image=IMAGE, **sent_to("far"))

    assert (plain["Engine"], plain["EngineReason"]) == (
        "here",
        "no rule holds for it and this is the yard's first engine",
    )
    assert (tagged["Engine"], tagged["EngineReason"]) == ("far", "its tag trainyard:engine names it")


def test_a_description_names_the_engine(user: As) -> None:
    create(user, **sent_to("far"))

    assert user("trainyard", "DescribeJob", TrainingJobName="mnist")["Engine"] == "far"


def test_a_description_says_that_the_yard_was_started_without_the_engine(user: As, anna: As) -> None:
    create(user, **sent_to("far"))

    described = anna("trainyard", "DescribeJob", TrainingJobName="mnist")

    assert described["Engine"] == "far"
    assert (
        described["Notes"][-1] == "This yard was started without the engine far; the job goes on when it has it again."
    )


def test_nodes_on_other_machines_need_a_yard_that_they_reach(user: As, far: SimulatedEngine) -> None:
    workshop = replace(user.yard.workshop, out_of_reach="it listens on 127.0.0.1 only")
    user = replace(user, yard=replace(user.yard, workshop=workshop))
    create(user, "near", **sent_to("far"))
    far.offered = Capacity((Node("n9", 4, 8.0, 32 * GIB, address="192.0.2.7"),))

    with pytest.raises(Fault, match=r"n9 on another machine.*because it listens on 127.0.0.1 only\. .*`advertise`"):
        create(user, "far", **sent_to("far"))
    create(user, "here", **sent_to("here"))
