from pathlib import Path

import pytest

from trainyard.engines.contract import Capabilities
from trainyard.engines.engine_set import EngineSet
from trainyard.engines.selection import EngineRules, EngineSelection, SelectionRequest, select_engine
from trainyard.foundation.errors import InvalidRequest
from trainyard.testing.engines.simulated import SimulatedEngine

REGISTRY = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
JOB = SelectionRequest(f"{REGISTRY}/pytorch-training:2.6", ["ml.m5.large"], {"team": "vision"})


@pytest.fixture
def engines(tmp_path: Path) -> EngineSet:
    container = SimulatedEngine(tmp_path, name="container")
    container.able = Capabilities(images="")
    return EngineSet(
        [SimulatedEngine(tmp_path, name="local"), SimulatedEngine(tmp_path, name="ray", is_here=False), container]
    )


def chosen(engines: EngineSet, folder: Path, rules: str, job: SelectionRequest = JOB) -> str:
    file = folder / "engines.toml"
    file.write_text(rules)
    return select_engine(job, engines, rules=EngineRules(file)).engine


def rule(conditions: str, engine: str = "ray") -> str:
    return f'[[rules]]\nengine = "{engine}"\n{conditions}\n'


def test_without_rules_a_job_goes_to_the_first_engine(engines: EngineSet, tmp_path: Path) -> None:
    choice = select_engine(JOB, engines, rules=EngineRules(tmp_path / "absent.toml"))

    assert choice == EngineSelection("local", "no rule matches and this is the yard's first engine")


@pytest.mark.parametrize(
    ("conditions", "engine"),
    [
        ("", "ray"),
        ('instance_type = "ml.m5.*"', "ray"),
        ('instance_type = ["ml.p4d.*", "ml.m5.*"]', "ray"),
        ('instance_type = "ml.p4d.*"', "local"),
        ('image = "pytorch-training:2.*"', "ray"),
        ('image = "*/pytorch-training:*"', "ray"),
        ('image = "*.eu-west-1.*/*"', "local"),
        ('tag = { team = "vision" }', "ray"),
        ('tag = { team = "v*", stage = "*" }', "local"),
        ('instance_type = "ml.m5.*"\nimage = "tensorflow*"', "local"),
        ('instance_type = "ml.m5.*"\ntag = { team = ["audio", "vision"] }', "ray"),
    ],
)
def test_a_rule_decides_when_all_its_conditions_hold(
    engines: EngineSet, tmp_path: Path, conditions: str, engine: str
) -> None:
    assert chosen(engines, tmp_path, rule(conditions)) == engine


def test_the_first_rule_that_holds_decides(engines: EngineSet, tmp_path: Path) -> None:
    rules = rule('tag = { team = "audio" }', "local") + rule('image = "pytorch*"', "container") + rule("", "ray")

    assert chosen(engines, tmp_path, rules) == "container"


def test_of_several_instance_types_all_must_fit(engines: EngineSet, tmp_path: Path) -> None:
    rules = rule('instance_type = "ml.p4d.*"')

    assert chosen(engines, tmp_path, rules, SelectionRequest("i", ["ml.p4d.24xlarge", "ml.c5.large"])) == "local"
    assert chosen(engines, tmp_path, rules, SelectionRequest("i", ["ml.p4d.24xlarge"] * 2)) == "ray"


def test_the_tag_wins_over_every_rule(engines: EngineSet, tmp_path: Path) -> None:
    job = SelectionRequest("i", ["local"], {"trainyard:engine": "container"})

    assert chosen(engines, tmp_path, rule(""), job) == "container"


def test_the_rules_are_read_for_each_job(engines: EngineSet, tmp_path: Path) -> None:
    rules = EngineRules(tmp_path / "engines.toml")
    assert select_engine(JOB, engines, rules=rules).engine == "local"

    (tmp_path / "engines.toml").write_text(rule('instance_type = "ml.m5.*"'))

    choice = select_engine(JOB, engines, rules=rules)
    assert (choice.engine, choice.why) == ("ray", "rule 1 of engines.toml matches (instance_type = ml.m5.*)")


def test_an_image_that_must_really_run_goes_where_images_run_unless_a_rule_says_otherwise(
    engines: EngineSet, tmp_path: Path
) -> None:
    rules = EngineRules(tmp_path / "engines.toml")
    own = SelectionRequest("mine:1", ["ml.m5.large"])
    assert select_engine(own, engines, rules=rules, must_run=lambda image: image == "mine:1").engine == "container"
    assert select_engine(JOB, engines, rules=rules, must_run=lambda image: image == "mine:1").engine == "local"

    (tmp_path / "engines.toml").write_text(rule(""))

    assert select_engine(own, engines, rules=rules, must_run=lambda _: True).engine == "ray"


def test_without_an_engine_that_runs_images_the_first_engine_gets_the_job(tmp_path: Path) -> None:
    engines = EngineSet([SimulatedEngine(tmp_path, name="local"), SimulatedEngine(tmp_path, name="ray", is_here=False)])

    choice = select_engine(JOB, engines, rules=EngineRules(tmp_path / "absent.toml"), must_run=lambda _: True)

    assert choice.engine == "local"


@pytest.mark.parametrize(
    ("rules", "tags", "why"),
    [
        ("", {"trainyard:engine": "slurm"}, "because its tag trainyard:engine names it"),
        (rule("", "slurm"), {}, "because rule 1 of engines.toml matches"),
    ],
)
def test_an_engine_that_the_yard_does_not_have_is_refused_with_those_it_has(
    engines: EngineSet, tmp_path: Path, rules: str, tags: dict[str, str], why: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chosen(engines, tmp_path, rules, SelectionRequest("i", ["local"], tags))

    assert 'the engine "slurm"' in caught.value.message
    assert why in caught.value.message
    assert "this yard has only local and ray and container" in caught.value.message


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[[rules]", "is not valid TOML"),
        ('engine = "ray"', "may hold only rules"),
        ("rules = 3", "may hold only rules"),
        ("rules = [3]", "rule 1 is not a table"),
        ('[[rules]]\nimage = "x"', "rule 1 names no engine"),
        (
            rule("") + rule('instance = "x"'),
            'rule 2 has the unknown key "instance"; the keys are engine, instance_type, image, tag',
        ),
        (rule("image = 3"), 'rule 1 needs a string or a list of strings for "image"'),
        (rule('tag = "team"'), "rule 1 has a tag that is not a table"),
        (rule("tag = { team = 3 }"), 'rule 1 needs a string or a list of strings for "team"'),
    ],
)
def test_rules_that_cannot_be_read_are_refused_with_the_file_and_the_place(
    tmp_path: Path, content: str, problem: str
) -> None:
    file = tmp_path / "engines.toml"
    file.write_text(content)

    with pytest.raises(InvalidRequest) as caught:
        EngineRules(file).read()

    assert str(file) in caught.value.message
    assert problem in caught.value.message
