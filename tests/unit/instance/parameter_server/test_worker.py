"""Which server keeps which parameters."""

from hypothesis import given
from hypothesis import strategies as st

from trainyard.instance.parameter_server.worker import shard_parameters


def test_large_parameters_are_dealt_out_first() -> None:
    assert shard_parameters({"a": 1, "b": 8, "c": 5, "d": 4}, 2) == [["b", "a"], ["c", "d"]]


def test_more_servers_than_parameters_leave_some_with_nothing() -> None:
    assert shard_parameters({"a": 1}, 3) == [["a"], [], []]


def test_the_order_in_which_parameters_are_named_does_not_matter() -> None:
    sizes = {"a": 2, "b": 2, "c": 2}
    assert shard_parameters(sizes, 2) == shard_parameters(dict(reversed(sizes.items())), 2)


@given(st.dictionaries(st.text(), st.integers(0, 1 << 40)), st.integers(1, 9))
def test_every_parameter_is_kept_once_and_no_server_has_much_more_than_another(
    sizes: dict[str, int], servers: int
) -> None:
    kept = shard_parameters(sizes, servers)
    assert sorted(name for names in kept for name in names) == sorted(sizes)
    loads = [sum(sizes[name] for name in names) for names in kept]
    assert max(loads) - min(loads) <= max(sizes.values(), default=0)
