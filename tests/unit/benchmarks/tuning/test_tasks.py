import math

import pytest

from benchmarks.tuning.tasks import DEVELOPMENT_TASKS, FINAL_TASKS, TASKS, Task


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_node_has_the_value_that_was_measured(task: Task) -> None:
    assert len(task.values) == sum(1 for _ in task.combinations)
    for index in range(0, len(task.values), 37):
        assert task.look_up(task.combination(index)) == pytest.approx(task.values[index])


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_least_value_is_that_of_the_optimum(task: Task) -> None:
    assert task.problem.least == min(task.values)
    assert all(math.isfinite(value) for value in task.values)


def test_a_value_between_two_nodes_is_between_theirs() -> None:
    task = next(each for each in TASKS if each.name == "svc_wine")
    nodes = dict(zip(("kernel", "c", "gamma"), task.nodes, strict=True))
    low, high = float(nodes["c"][4]), float(nodes["c"][5])
    gamma = nodes["gamma"][6]
    ends = [task.look_up({"kernel": "rbf", "c": c, "gamma": gamma}) for c in (low, high)]
    middle = task.look_up({"kernel": "rbf", "c": math.sqrt(low * high), "gamma": gamma})
    assert middle == pytest.approx(sum(ends) / 2)


def test_no_data_set_is_for_development_and_for_the_final_table() -> None:
    data = [{task.name.rpartition("_")[2] for task in tasks} for tasks in (DEVELOPMENT_TASKS, FINAL_TASKS)]
    assert data[0] & data[1] == set()
    assert len(FINAL_TASKS) >= 6
