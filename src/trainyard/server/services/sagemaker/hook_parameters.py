"""The parameters of a hook and of its collections: checked, and joined where a collection is named twice."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from trainyard.foundation.errors import InvalidRequest

MODES = ("train", "eval", "predict", "global")
REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod")
NORMS = ("l1", "l2")
# What is known without a regex: those of PyTorch, of XGBoost, and of the others.
BUILT_IN = frozenset(
    {
        *("all", "default", "weights", "biases", "gradients", "losses", "optimizer_variables"),
        *("metrics", "sm_metrics", "inputs", "outputs", "layers"),
        *("hyperparameters", "predictions", "labels", "feature_importance", "average_shap", "full_shap", "trees"),
    }
)

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_WORKERS = ("one", "all")
_NO_LIMIT = "none"
_SAVING = ("save_interval", "save_steps", "start_step", "end_step")

Parameters = Mapping[str, str]
Check = Callable[[str, str], None]


def check_hook_parameters(given: Parameters, *, member: str) -> None:
    """InvalidRequest names a parameter that a hook does not have, or a value that it cannot take."""
    _check(given, _OF_HOOK, member=member)


def check_collection_parameters(given: Parameters, *, member: str) -> None:
    """The same for a collection."""
    _check(given, _OF_COLLECTION, member=member)


def joined_collections(given: Iterable[tuple[str, Parameters]], hook: Parameters) -> dict[str, dict[str, str]]:
    """One set of parameters for each name: a tensor is saved when any of those that name its collection says so.

    SDKs name a collection once for each rule that looks at it and once for the user, in no order. One that does not say
    when it is saved means the hook's words on it.
    """
    named: dict[str, list[dict[str, str]]] = {}
    for name, parameters in given:
        named.setdefault(name, []).append(dict(parameters))
    return {name: _joined(several, hook) for name, several in named.items()}


def _joined(several: Sequence[dict[str, str]], hook: Parameters) -> dict[str, str]:
    if len(several) == 1:
        return several[0]
    found: dict[str, str] = {}
    for parameters in several:
        says_when = any(_saving_word(key) for key in parameters)
        whole = parameters if says_when else {**{k: v for k, v in hook.items() if _saving_word(k)}, **parameters}
        for key, value in whole.items():
            found[key] = _either(key, found[key], value) if key in found else value
    return found


def _saving_word(key: str) -> str:
    word = key.rpartition(".")[2]
    return word if word in _SAVING else ""


def _either(key: str, first: str, second: str) -> str:
    """The value that asks for all that two values ask for."""
    word = _saving_word(key) or key
    if word in ("save_interval", "start_step"):
        return min(first, second, key=int)
    if word == "end_step":
        return max(first, second, key=int)
    if word in ("save_steps", "reductions", "include_regex"):
        return ",".join(dict.fromkeys([*_items(first), *_items(second)]))
    return first if first.lower() in _TRUE else second


def _check(given: Parameters, known: Mapping[str, Check], *, member: str) -> None:
    for key, value in given.items():
        if key not in known:
            words = ", ".join(dict.fromkeys(name for name in known if "." not in name))
            raise InvalidRequest(
                f'{member} has "{key}", which means nothing; there are {words}, and {", ".join(_SAVING)} also with '
                f"{', '.join(f'{mode}.' for mode in MODES)} before them."
            )
        known[key](f"{member}.{key}", value)
    for mode in ("", *(f"{mode}." for mode in MODES)):
        start, end = given.get(f"{mode}start_step"), given.get(f"{mode}end_step")
        if start is not None and end is not None and int(end) <= int(start):
            raise InvalidRequest(
                f"{member} has {mode}start_step {start} and {mode}end_step {end}, so that no step is saved."
            )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _truth(what: str, value: str) -> None:
    if value.strip().lower() not in (*_TRUE, *_FALSE):
        raise InvalidRequest(f'{what} is "{value}"; it is "True" or "False".')


def _interval(what: str, value: str) -> None:
    if not value.strip().isdecimal() or int(value) < 1:
        raise InvalidRequest(f'{what} is "{value}"; it is a whole number of steps, 1 or more.')


def _step(what: str, value: str) -> None:
    if not value.strip().isdecimal():
        raise InvalidRequest(f'{what} is "{value}"; it is the number of a step, 0 or more.')


def _steps(what: str, value: str) -> None:
    if not _items(value) or not all(item.isdecimal() for item in _items(value)):
        raise InvalidRequest(f'{what} is "{value}"; it is numbers of steps with commas between them, such as 0,10,20.')


def _regexes(what: str, value: str) -> None:
    for regex in _items(value):
        try:
            re.compile(regex)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidRequest(f"{what} has {regex!r}, which is no regular expression: {error}.") from error


def _reductions(what: str, value: str) -> None:
    plain = (*REDUCTIONS, *(f"{norm}_norm" for norm in NORMS))
    for item in _items(value):
        if item.removeprefix("abs_") not in plain:
            raise InvalidRequest(f'{what} has "{item}"; there are {", ".join(plain)}, each also with abs_ before it.')


def _workers(what: str, value: str) -> None:
    if value not in _WORKERS:
        raise InvalidRequest(f'{what} is "{value}"; it is "one" or "all".')


def _budget(what: str, value: str) -> None:
    if value.lower() == _NO_LIMIT:
        return
    try:
        is_percent = 0 < float(value) <= 100
    except ValueError:
        is_percent = False
    if not is_percent:
        raise InvalidRequest(f'{what} is "{value}"; it is percent of a step\'s time, or "none" for no limit.')


def _any(_what: str, _value: str) -> None:
    """Any text will do."""


_SAVE_CHECKS: Mapping[str, Check] = {
    "save_interval": _interval,
    "save_steps": _steps,
    "start_step": _step,
    "end_step": _step,
}
_OF_BOTH: Mapping[str, Check] = {
    **_SAVE_CHECKS,
    **{f"{mode}.{word}": check for mode in MODES for word, check in _SAVE_CHECKS.items()},
    "include_regex": _regexes,
    "reductions": _reductions,
    "save_raw_tensor": _truth,
    "save_shape": _truth,
}
_OF_COLLECTION: Mapping[str, Check] = {**_OF_BOTH, "save_histogram": _truth}
_OF_HOOK: Mapping[str, Check] = {
    **_OF_BOTH,
    "save_all": _truth,
    "include_workers": _workers,
    "export_tensorboard": _truth,
    "tensorboard_dir": _any,
    "dry_run": _truth,
    "overhead_budget": _budget,
    "record_steps": _step,
}
