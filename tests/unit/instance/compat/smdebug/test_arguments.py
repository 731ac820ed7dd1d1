"""Arguments that come as strings, like those of rules in jobs, and trials without refreshing."""

from types import SimpleNamespace

import pytest
from smdebug.analysis.utils import no_refresh, parse_bool, parse_list_from_str, refresh
from smdebug.core.utils import flatten, is_s3, match_inc, step_in_range


def test_lists_are_parsed_from_words() -> None:
    assert parse_list_from_str("a,b") == ["a", "b"]
    assert parse_list_from_str("a;b", delimiter=";") == ["a", "b"]
    assert parse_list_from_str(["a"]) == ["a"]
    assert parse_list_from_str("") == parse_list_from_str(None) == []


def test_booleans_are_parsed_from_words() -> None:
    assert [parse_bool(word, False) for word in ("True", "true", True)] == [True] * 3
    assert [parse_bool(word, True) for word in ("False", "false", False)] == [False] * 3
    assert parse_bool(None, True) is True
    with pytest.raises(ValueError, match="neither true nor false"):
        parse_bool("perhaps", True)


def test_no_refresh_holds_and_restores_refreshing() -> None:
    one, other = (SimpleNamespace(dynamic_refresh=True) for _ in "12")
    with no_refresh([one, other]) as held:
        assert held == [one, other]
        assert not one.dynamic_refresh
        with refresh(one):
            assert one.dynamic_refresh
        assert not one.dynamic_refresh
    assert one.dynamic_refresh
    assert other.dynamic_refresh


def test_a_trial_looks_again_after_an_error_too() -> None:
    trial = SimpleNamespace(dynamic_refresh=True)
    with pytest.raises(ZeroDivisionError), no_refresh(trial):
        raise ZeroDivisionError
    assert trial.dynamic_refresh


def test_paths_names_and_ranges_are_distinguished() -> None:
    assert is_s3("s3://bucket/a/b") == (True, "bucket", "a/b")
    assert is_s3("s3://bucket") == (True, "bucket", "")
    assert is_s3("/tmp/x") == (False, None, None)
    assert flatten([1, [2, [3]], "a"]) == [1, 2, 3, "a"]
    assert match_inc("Net_relu1_output_0", ["relu.*_output"])
    assert not match_inc("Net_fc", ["relu", "^fc"])
    assert step_in_range((2, None), 2)
    assert not step_in_range((None, 5), 5)
