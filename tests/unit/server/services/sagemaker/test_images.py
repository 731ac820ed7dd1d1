import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.engines.container.pretended_tool import PretendedTool
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Workshop
from trainyard.server.services.sagemaker.images import require_image
from trainyard.testing.workshop import simulated_workshop

OWN, OTHER = "111111111111", "222222222222"


@pytest.fixture
def tool(tmp_path: Path) -> PretendedTool:
    return PretendedTool.made_in(tmp_path / "tool")


@pytest.fixture
def workshop(tmp_path: Path, tool: PretendedTool) -> Workshop:
    """Of a yard that runs images."""
    return replace(simulated_workshop(tmp_path), containers=tool.store)


def registry(account: str) -> str:
    return f"{account}.dkr.ecr.us-east-1.amazonaws.com"


def test_an_image_of_the_registry_of_another_account_is_refused_whether_it_is_there_or_not(
    workshop: Workshop, tool: PretendedTool
) -> None:
    tool.add(f"{registry(OTHER)}/secret:1")

    refusals = []
    for name in ("secret", "absent"):
        with pytest.raises(InvalidRequest, match="another account") as caught:
            require_image(workshop, f"{registry(OTHER)}/{name}:1", account=OWN)
        refusals.append(caught.value.message.replace(name, "NAME"))

    assert refusals[0] == refusals[1]
    require_image(workshop, f"{registry(OTHER)}/secret:1", account=OTHER)


def test_an_image_that_is_mapped_is_for_all_accounts(workshop: Workshop, tool: PretendedTool) -> None:
    tool.add("localhost/shared:1")
    workshop.images.map_container("shared", "localhost/shared:1")

    require_image(workshop, f"{registry(OTHER)}/shared:1", account=OWN)


def test_an_image_that_is_not_on_this_machine_is_refused(workshop: Workshop, tool: PretendedTool) -> None:
    workshop.images.map_container("gone", "localhost/gone:1")
    tool.add("docker.io/library/python:3.12")

    for image, missing in (("gone:2", "localhost/gone:1"), (f"{registry(OWN)}/mine:1", "mine:1"), ("new:1", "new:1")):
        with pytest.raises(InvalidRequest, match=rf'no image "\S*{missing}"'):
            require_image(workshop, image, account=OWN)
    require_image(workshop, "python:3.12", account=OWN)


def test_an_image_that_stands_for_a_python_is_of_no_registry(workshop: Workshop) -> None:
    workshop.images.map("mine", sys.executable)

    for image in (f"{registry(OTHER)}/mine:1", f"{registry('763104351884')}/pytorch-training:2.6"):
        require_image(workshop, image, account=OWN)
