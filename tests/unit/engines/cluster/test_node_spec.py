"""What a node makes of what the yard says."""

from dataclasses import replace
from pathlib import Path

from trainyard.engines.cluster.node_spec import NodeFacts, NodeFolder, spec_for_node
from trainyard.link.contract import SERVED, ChannelSpec, InstanceSpec, LimitSpec, ObjectsSpec, ProgramSpec, WarmSpec
from trainyard.testing.engines import samples

NODE = Path("/node/yard")
SPEC = replace(
    samples.attempt_specs(samples.SampleEnvironment(Path("/yard/objects"), uid=20001))[0],
    program=ProgramSpec("train.py", "s3://b/code.tar.gz", (), "/yard/env/bin/python"),
    channels=[
        ChannelSpec("train", "File", "b", "data", ("a",), cache="/yard/cache"),
        ChannelSpec("x", "File", "b", "x"),
    ],
    objects=ObjectsSpec("/yard/objects", SERVED, "http://10.0.0.1:8000"),
    limits=LimitSpec(cpus=2.0, gpus=(0,)),
    hidden=("/yard", "/home"),
    environments="/yard/environments/111111111111",
    warm=WarmSpec("/yard/warm/111111111111", 60),
    notes=("something",),
    doorbell="/yard/bell",
)


def here(*there: str, is_root: bool = True, gpus: tuple[int, ...] | None = None) -> NodeFacts:
    return NodeFacts(
        NodeFolder(NODE), "/usr/bin/python3", is_root, (NODE, Path("/home")), lambda path: path in there, gpus
    )


def localised(*there: str, is_root: bool = True, gpus: tuple[int, ...] | None = None) -> InstanceSpec:
    return spec_for_node(SPEC, here(*there, is_root=is_root, gpus=gpus))


def test_what_is_kept_on_a_node_is_kept_in_its_folder() -> None:
    spec = localised()

    assert spec.environments == "/node/yard/environments/111111111111"
    assert spec.warm == WarmSpec("/node/yard/warm/111111111111", 60)
    assert [channel.cache for channel in spec.channels] == ["/node/yard/cache", ""]
    assert spec.objects == replace(SPEC.objects, folder="/node/yard/staging")
    assert spec.doorbell == ""


def test_objects_in_a_folder_stay_where_they_are() -> None:
    objects = ObjectsSpec("/shared/objects")
    assert spec_for_node(replace(SPEC, objects=objects), here()).objects == objects


def test_what_is_not_kept_by_the_yard_is_not_kept_by_a_node() -> None:
    spec = spec_for_node(replace(SPEC, environments="", warm=None), here())
    assert (spec.environments, spec.warm) == ("", None)


def test_a_python_that_is_there_is_used() -> None:
    spec = localised("/yard/env/bin/python")
    assert spec.program == SPEC.program
    assert spec.notes == SPEC.notes


def test_a_missing_python_is_replaced_with_a_note() -> None:
    spec = localised()
    assert spec.program == replace(SPEC.program, interpreter="/usr/bin/python3")
    assert spec.notes[0] == "something"
    assert "/yard/env/bin/python" in spec.notes[1]


def test_only_root_runs_programs_as_others() -> None:
    assert localised().uid == 20001
    assert localised(is_root=False).uid is None


def test_gpus_are_those_that_the_node_has_given() -> None:
    assert localised().limits == SPEC.limits
    assert localised(gpus=(3, 5)).limits == LimitSpec(cpus=2.0, gpus=(3, 5))


def test_a_program_sees_neither_the_folder_of_the_node_nor_what_the_yard_hides() -> None:
    assert localised("/yard").hidden == ("/home", "/node/yard", "/yard")
    assert localised().hidden == ("/home", "/node/yard")


def test_everything_else_stays_unchanged() -> None:
    changed = ("program", "notes", "channels", "objects", "limits", "uid", "hidden", "environments", "warm", "doorbell")
    spec = localised()
    assert replace(spec, **{name: getattr(SPEC, name) for name in changed}) == SPEC
