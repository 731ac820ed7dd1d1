import pytest

from trainyard.foundation.errors import InvalidRequest, LimitExceeded
from trainyard.server.services.tag_rules import require_tags


def test_tags_up_to_every_limit_are_allowed() -> None:
    require_tags(
        {"k" * 128: "v" * 256, "empty": "", "laws:": "ü 東\u3000京"}, known={f"key{number}": "" for number in range(47)}
    )


@pytest.mark.parametrize("key", ["", "k" * 129, "aws:created-by", "AWS:x"])
def test_a_key_out_of_bounds_or_reserved_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest, match="Invalid tag key"):
        require_tags({key: "value"})


def test_a_value_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest, match='tag "k" has 257 characters; at most 256'):
        require_tags({"k": "v" * 257})


@pytest.mark.parametrize("text", ["a\0", "a\nb", "\ud800"])
def test_control_characters_and_unpaired_surrogates_are_refused(text: str) -> None:
    for tags in ({text: "value"}, {"key": text}):
        with pytest.raises(InvalidRequest, match="control characters or an unpaired surrogate"):
            require_tags(tags)


def test_known_and_new_tags_together_are_at_most_fifty() -> None:
    known = {f"key{number}": "" for number in range(50)}
    require_tags({"key0": "replaced"}, known=known)
    with pytest.raises(LimitExceeded, match="would have 51 tags"):
        require_tags({"new": ""}, known=known)
