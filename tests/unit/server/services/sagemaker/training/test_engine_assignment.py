import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulated_compute import simulated_compute
from tests.unit.engines.container.pretended_tool import PretendedTool
from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.requests import IMAGE, create
from trainyard.engines.contract import Capabilities, Capacity, Node
from trainyard.engines.engine_set import EngineSet
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import ResourceKey
from trainyard.server.services.contract import Compute
from trainyard.server.services.sagemaker.training.engine_assignment import require_image
from trainyard.testing.engines.simulated import SimulatedEngine
from trainyard.wire.fault import Fault

GIB = 1024**3
OWN, OTHER = "111111111111", "222222222222"


@pytest.fixture
def far(anna: As) -> SimulatedEngine:
    """An engine with two remote nodes, which runs images."""
    nodes = (Node("n1", 4, 8.0, 32 * GIB, gpus=(0, 1)), Node("n2", 4, 8.0, 32 * GIB))
    engine = SimulatedEngine(anna.yard.compute.jobs, name="far", is_here=False, capacity=Capacity(nodes))
    engine.able = Capabilities(images="")
    return engine


@pytest.fixture
def here(anna: As) -> SimulatedEngine:
    engine = SimulatedEngine(anna.yard.compute.jobs, name="here")
    engine.able = Capabilities(images="it runs none")
    return engine


@pytest.fixture
def user(anna: As, here: SimulatedEngine, far: SimulatedEngine) -> As:
    """Return Anna on a yard with the engines `here` and `far`; only `far` runs images."""
    compute = replace(anna.yard.compute, engines=EngineSet([here, far]))
    return replace(anna, yard=replace(anna.yard, compute=compute))


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
    rules = user.yard.compute.jobs.parent / "engines.toml"
    rules.write_text('[[rules]]\nengine = "far"\ninstance_type = "ml.p4d.*"\n')

    create(user, "large", **resources("ml.p4d.24xlarge"))
    create(user, "small")

    assert (job(user, "large").plan.engine, job(user, "small").plan.engine) == ("far", "here")


def test_an_engine_that_the_yard_does_not_have_is_refused_with_those_it_has(user: As) -> None:
    with pytest.raises(
        Fault, match='the engine "slurm", because its tag trainyard:engine names it, but this yard has only here'
    ):
        create(user, **sent_to("slurm"))


def test_shortfalls_are_those_of_the_jobs_engine(user: As) -> None:
    create(user, "here", **resources("ml.p3.8xlarge"))
    create(user, "far", **resources("ml.p3.8xlarge"), **sent_to("far"))

    assert any("none of 4 GPUs" in note for note in job(user, "here").notes)
    assert any("2 of 4 GPUs" in note for note in job(user, "far").notes)


def test_a_job_for_an_engine_without_nodes_is_noted_as_waiting(user: As, far: SimulatedEngine) -> None:
    far.offered = Capacity(())

    create(user, **sent_to("far"))

    assert "When the job was created, its engine far had no node for it; the job waits for one." in job(user).notes


def test_a_job_for_an_unreachable_engine_is_noted_with_the_reason(user: As, far: SimulatedEngine) -> None:
    far.offered = replace(far.offered, obstacle="The cluster does not answer.")

    create(user, **sent_to("far"))

    assert (
        "When the job was created, its engine far could not place jobs: The cluster does not answer." in job(user).notes
    )


def test_an_image_without_a_python_goes_to_the_engine_that_runs_images_as_it_is(user: As) -> None:
    create(user, HyperParameters=None, **algorithm("mine:1", ContainerArguments=["fit", "--fast"]))

    plan = job(user).plan
    assert (plan.engine, plan.image, plan.arguments) == ("far", "mine:1", ("fit", "--fast"))


def test_a_container_image_is_refused_on_an_engine_without_containers(user: As) -> None:
    with pytest.raises(Fault, match="must run as a container, but the job goes to the engine here, and it runs none"):
        create(user, **algorithm("mine:1"), **sent_to("here"))


def test_isolation_is_asked_of_the_engine_of_the_job(user: As, far: SimulatedEngine) -> None:
    far.obstacle = "its instances lie on several machines"

    with pytest.raises(
        Fault, match="is not available on the engine far, because its instances lie on several machines"
    ):
        create(user, EnableNetworkIsolation=True, **sent_to("far"))
    create(user, EnableNetworkIsolation=True)


def test_encryption_between_machines_is_refused_for_another_reason_than_on_one(user: As) -> None:
    encrypted = {"EnableInterContainerTrafficEncryption": True, **resources(count=2)}
    with pytest.raises(Fault, match="on the engine far: traffic between the machines of a job is not encrypted"):
        create(user, **encrypted, **sent_to("far"))
    with pytest.raises(Fault, match="never leaves the kernel"):
        create(user, **encrypted)


def test_a_warm_pool_is_refused_on_an_engine_without_warm_workers(user: As, far: SimulatedEngine) -> None:
    far.able = Capabilities(warm_workers="each program has a container of its own", images="")

    with pytest.raises(Fault, match="The engine far does not support KeepAlivePeriodInSeconds, because each program"):
        create(user, **resources(KeepAlivePeriodInSeconds=60), **sent_to("far"))
    create(user, **sent_to("far"))
    kept = {"KeepAlivePeriodInSeconds": 60}
    with pytest.raises(Fault, match="The engine far does not support"):
        user("sagemaker", "UpdateTrainingJob", TrainingJobName="mnist", ResourceConfig=kept)


def test_gpus_are_refused_where_an_engine_has_them_and_cannot_give_them(user: As, far: SimulatedEngine) -> None:
    far.able = Capabilities(gpus="the nodes lack a driver", images="")

    with pytest.raises(
        Fault, match=r"ml\.p3\.2xlarge has GPUs, which the engine far cannot provide, because the nodes lack"
    ):
        create(user, **resources("ml.p3.2xlarge"), **sent_to("far"))
    create(user, **sent_to("far"))


def test_a_quote_tells_the_engine_and_why(user: As) -> None:
    asked = {"InstanceType": "ml.m5.large", "InstanceCount": 1}

    plain = user("trainyard", "QuoteJob", **asked)
    tagged = user("trainyard", "QuoteJob", **asked, Image=IMAGE, **sent_to("far"))

    assert (plain["Engine"], plain["EngineReason"]) == (
        "here",
        "no rule matches and this is the yard's first engine",
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
        described["Notes"][-1]
        == "This yard was started without the engine far; the job continues when the yard has it again."
    )


def test_nodes_on_other_machines_need_a_yard_that_they_reach(user: As, far: SimulatedEngine) -> None:
    compute = replace(user.yard.compute, out_of_reach="it listens on 127.0.0.1 only")
    user = replace(user, yard=replace(user.yard, compute=compute))
    create(user, "near", **sent_to("far"))
    far.offered = Capacity((Node("n9", 4, 8.0, 32 * GIB, address="192.0.2.7"),))

    with pytest.raises(
        Fault, match=r"n9 of the engine far is on another machine.*because it listens on 127.0.0.1 only\. .*`advertise`"
    ):
        create(user, "far", **sent_to("far"))
    create(user, "here", **sent_to("here"))


@pytest.fixture
def tool(tmp_path: Path) -> PretendedTool:
    return PretendedTool.made_in(tmp_path / "tool")


@pytest.fixture
def compute(tmp_path: Path, tool: PretendedTool) -> Compute:
    """Return the `Compute` of a yard that runs images."""
    return replace(simulated_compute(tmp_path), containers=tool.store)


def registry(account: str) -> str:
    return f"{account}.dkr.ecr.us-east-1.amazonaws.com"


def test_an_image_of_the_registry_of_another_account_is_refused_whether_it_is_there_or_not(
    compute: Compute, tool: PretendedTool
) -> None:
    tool.add(f"{registry(OTHER)}/secret:1")

    refusals = []
    for name in ("secret", "absent"):
        with pytest.raises(InvalidRequest, match="another account") as caught:
            require_image(compute, f"{registry(OTHER)}/{name}:1", account=OWN)
        refusals.append(caught.value.message.replace(name, "NAME"))

    assert refusals[0] == refusals[1]
    require_image(compute, f"{registry(OTHER)}/secret:1", account=OTHER)


def test_an_image_that_is_mapped_is_for_all_accounts(compute: Compute, tool: PretendedTool) -> None:
    tool.add("localhost/shared:1")
    compute.images.map_container("shared", "localhost/shared:1")

    require_image(compute, f"{registry(OTHER)}/shared:1", account=OWN)


def test_an_image_that_is_not_on_this_machine_is_refused(compute: Compute, tool: PretendedTool) -> None:
    compute.images.map_container("gone", "localhost/gone:1")
    tool.add("docker.io/library/python:3.12")

    for image, missing in (("gone:2", "localhost/gone:1"), (f"{registry(OWN)}/mine:1", "mine:1"), ("new:1", "new:1")):
        with pytest.raises(InvalidRequest, match=rf'no image "\S*{missing}"'):
            require_image(compute, image, account=OWN)
    require_image(compute, "python:3.12", account=OWN)


def test_an_image_mapped_to_a_python_belongs_to_no_registry(compute: Compute) -> None:
    compute.images.map("mine", sys.executable)

    for image in (f"{registry(OTHER)}/mine:1", f"{registry('763104351884')}/pytorch-training:2.6"):
        require_image(compute, image, account=OWN)
