import re
import time
from collections.abc import Iterator

import pytest
import regex

from trainyard.wire.models import Models
from trainyard.wire.patterns import CORRECTIONS, matcher

SERVICES = ["sts", "iam", "sagemaker", "sagemaker-runtime", "sagemaker-metrics", "logs", "cloudwatch"]
SERVICES += ["resourcegroupstaggingapi", "ecr"]
UNBOUNDED = 65536
UNITS = ["a", "-", "a-", "0", "/", "a/", ".", "a.", " ", "a:", "A0", "=", "a@"]
STARTS = ["", "s3://", "https://", "arn:aws:iam::123456789012:role/"]


def _patterns(models: Models) -> Iterator[tuple[str, int]]:
    for service in SERVICES:
        for name in models.service(service).shape_names:
            metadata = models.service(service).shape_for(name).metadata
            if "pattern" in metadata:
                yield metadata["pattern"], metadata.get("max", UNBOUNDED)


def test_every_pattern_of_the_served_models_can_be_read(models: Models) -> None:
    assert len({matcher(pattern) for pattern, _ in _patterns(models)}) > 300


def test_every_correction_is_of_a_pattern_that_a_model_has(models: Models) -> None:
    assert set(CORRECTIONS) <= {pattern for pattern, _ in _patterns(models)}


def test_a_corrected_pattern_was_unreadable_or_slow() -> None:
    unreadable = [pattern for pattern in CORRECTIONS if not _compiles(pattern)]
    assert len(unreadable) == 1


def _compiles(pattern: str) -> bool:
    try:
        regex.compile(pattern)
    except regex.error:
        return False
    return True


def test_no_pattern_takes_long_to_refuse_a_hostile_string(models: Models) -> None:
    """Each pattern takes a thousandth of the one-second limit; unbounded backtracking takes years."""
    for pattern, most in set(_patterns(models)):
        match = matcher(pattern)
        began = time.process_time()
        for text in _hostile(min(most, 2048)):
            match(text)
        assert time.process_time() - began < 1, pattern


def _hostile(length: int) -> Iterator[str]:
    for start in STARTS:
        for unit in UNITS:
            yield (start + unit * length)[: length - 1] + "\n"


@pytest.mark.parametrize("pattern", [pattern for pattern in CORRECTIONS if _compiles(pattern)])
def test_a_faster_pattern_is_of_the_same_language(pattern: str) -> None:
    slow, fast = re.compile(pattern), matcher(pattern)
    for text in _short_texts():
        for candidate in (text, f"https://{text}"):
            assert bool(slow.fullmatch(candidate)) == bool(fast(candidate)), candidate


def _short_texts() -> Iterator[str]:
    texts = [""]
    for _ in range(5):
        texts = [text + character for text in texts for character in "a-/.*"]
        yield from texts


def test_the_whole_string_must_match_and_nothing_less() -> None:
    assert matcher("[a-z]+")("abc")
    assert not matcher("[a-z]+")("abc\n")
    assert not matcher("^[a-z]+$")("abc\n")


def test_a_word_character_is_one_of_ascii_as_in_java() -> None:
    assert not matcher(r"[\w+=,.@-]+")("ü")


def test_letters_of_every_script_are_letters() -> None:
    assert matcher(r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)")("täg 五: @")
    assert not matcher(r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)")("\x00")


def test_characters_beyond_the_basic_plane_satisfy_the_pattern_that_means_them() -> None:
    pattern = next(pattern for pattern in CORRECTIONS if "uDBFF" in pattern)
    assert matcher(pattern)("table \U0001f686")
    assert not matcher(pattern)("\x01")
