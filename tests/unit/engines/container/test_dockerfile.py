import pytest

from trainyard.engines.container.dockerfile import base_images

AMAZON = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:1.9.0-gpu-py38-cu111-ubuntu20.04"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"FROM {AMAZON}\nRUN apt-get update && apt-get -y install python3-opencv\nCOPY a ./a\n", (AMAZON,)),
        ("from python:3.12 as base\nFROM base\nCOPY --from=base /a /a\n", ("python:3.12",)),
        (
            "FROM --platform=linux/amd64 one\nFROM two AS last\nCOPY --chown=1:1 --from=three a b\n",
            ("one", "two", "three"),
        ),
        ("FROM scratch\nCOPY --from=0 /a /a\n", ()),
        ("# FROM none\n\n  FROM \\\n# between\n  one\n", ("one",)),
        ("FROM one\nRUN --mount=type=bind,from=two,target=/x ls\n", ("one", "two")),
        ("FROM one\nRUN <<EOF\nFROM nowhere\nEOF\nFROM two\n", ("one", "two")),
        ("FROM one\nRUN echo \\\n  FROM nowhere\n", ("one",)),
        ("FROM one\nFROM one\n", ("one",)),
        ("FROM\n", ()),
        ("", ()),
    ],
)
def test_what_a_dockerfile_is_built_from_is_known(text: str, expected: tuple[str, ...]) -> None:
    assert base_images(text, {}) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "registry.example/base:1"),
        ({"TAG": "2"}, "registry.example/base:2"),
        ({"OTHER": "2"}, "registry.example/base:1"),
    ],
)
def test_arguments_take_the_place_of_defaults(given: dict[str, str], expected: str) -> None:
    text = 'ARG REGISTRY="registry.example" TAG=1\nARG NAME=${REGISTRY}/base\nFROM $NAME:${TAG}\nARG TAG=9\n'

    assert base_images(text, given) == (expected,)


@pytest.mark.parametrize(
    ("image", "expected"),
    [("${NONE:-base}", "base"), ("${SOME:-base}", "one"), ("base${SOME:+-x}${NONE:+-y}", "base-x")],
)
def test_variables_have_fallbacks(image: str, expected: str) -> None:
    assert base_images(f"ARG SOME=one\nFROM {image}\n", {}) == (expected,)
