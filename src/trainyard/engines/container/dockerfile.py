"""Finds the base images of a Dockerfile."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

# Stands for no image at all.
_SCRATCH = "scratch"
_VARIABLE = re.compile(r"\$(?:(?P<bare>\w+)|\{(?P<name>\w+)(?::(?P<mark>[-+])(?P<word>[^}]*))?\})")
_HERE_DOCUMENT = re.compile(r"<<-?[\"']?(?P<end>\w+)[\"']?")
_OPTION = re.compile(r"--(?P<name>[\w-]+)(?:=(?P<value>\S*))?\s+")
_FROM = re.compile(r"(?:^|,)from=(?P<image>[^,]+)")


def base_images(text: str, arguments: Mapping[str, str]) -> tuple[str, ...]:
    """Return the images that its stages start from or copy from, each once, in order; not the stages themselves.

    `arguments` are the given build arguments, which replace the defaults in the file.
    """
    found: dict[str, None] = {}
    # FROM may use the arguments above the first FROM.
    known: dict[str, str] = {}
    stages: list[str] = []
    for word, rest in _instructions(text):
        if word == "ARG" and not stages:
            known |= dict(_argument(each, arguments, known=known) for each in _words(rest))
        elif word == "FROM":
            image, alias = _stage(_expand_variables(rest, known))
            if image.lower() not in stages:
                found[image] = None
            stages.append(alias.lower())
        else:
            found |= dict.fromkeys(each for each in _copy_sources(word, rest) if not _is_stage(each, stages))
    return tuple(image for image in found if image and image != _SCRATCH)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction and its arguments, with continued lines joined, without comments and here-documents."""
    lines = iter(text.splitlines())
    for line in lines:
        whole = line.strip()
        if not whole or whole.startswith("#"):
            continue
        while whole.endswith("\\"):
            following = next((each.strip() for each in lines if not each.lstrip().startswith("#")), "")
            whole = f"{whole[:-1].rstrip()} {following}"
        word, _, rest = whole.partition(" ")
        yield word.upper(), rest.strip()
        for document in _HERE_DOCUMENT.finditer(rest) if word.upper() in ("RUN", "COPY", "ADD") else ():
            next((each for each in lines if each.strip() == document["end"]), None)


def _argument(text: str, given: Mapping[str, str], *, known: Mapping[str, str]) -> tuple[str, str]:
    name, _, default = text.partition("=")
    return name, given.get(name, _expand_variables(default, known))


def _stage(text: str) -> tuple[str, str]:
    """Return the image and the name in `--platform=… image AS name`; empty if missing."""
    image, *alias = _OPTION.sub("", f"{text} ").split() or [""]
    return image, alias[1] if len(alias) == 2 else ""


def _copy_sources(word: str, rest: str) -> Iterator[str]:
    """Yield the images in `COPY --from=` and `RUN --mount=…,from=`."""
    while (option := _OPTION.match(rest)) and word in ("COPY", "ADD", "RUN"):
        value = option["value"] or ""
        if option["name"] == "from":
            yield value
        elif option["name"] == "mount" and (found := _FROM.search(value)):
            yield found["image"]
        rest = rest[option.end() :]


def _is_stage(name: str, stages: Sequence[str]) -> bool:
    return name.isdigit() or name.lower() in stages


def _expand_variables(text: str, values: Mapping[str, str]) -> str:
    def fill(variable: re.Match[str]) -> str:
        value = values.get(variable["bare"] or variable["name"], "")
        if variable["mark"] == "+":
            return variable["word"] if value else ""
        return value or variable["word"] or ""

    return _VARIABLE.sub(fill, text)


def _words(text: str) -> list[str]:
    """Split as a shell does. If quotes do not match, split at spaces; the tool will report the error."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
