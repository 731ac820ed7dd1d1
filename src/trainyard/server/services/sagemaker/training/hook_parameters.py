"""The parameters of a hook and its collections: check them, and merge collections that are given twice."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from trainyard.foundation.errors import InvalidRequest

MODES = ("train", "eval", "predict", "global")
REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod")
NORMS = ("l1", "l2")
# Collections that need no regex: those of PyTorch, of XGBoost, and of other frameworks.
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
_SCHEDULE = ("save_interval", "save_steps", "start_step", "end_step")

Parameters = Mapping[str, str]
Check = Callable[[str, str], None]


def check_hook_parameters(given: Parameters, *, member: str) -> None:
    """Raise InvalidRequest for an unknown parameter of a hook or an invalid value."""
    _check(given, _HOOK_CHECKS, member=member)


def check_collection_parameters(given: Parameters, *, member: str) -> None:
    """Raise InvalidRequest for an unknown parameter of a collection or an invalid value."""
    _check(given, _COLLECTION_CHECKS, member=member)


def merge_collections(given: Iterable[tuple[str, Parameters]], hook: Parameters) -> dict[str, dict[str, str]]:
    """Merge the parameters given for each collection: a tensor is saved whenever any of them asks for it.

    SDKs give a collection once for each rule that needs it and once for the user, in any order. One that does not say
    when to save takes that from the hook.
    """
    by_name: dict[str, list[dict[str, str]]] = {}
    for name, parameters in given:
        by_name.setdefault(name, []).append(dict(parameters))
    return {name: _merge_parameters(several, hook) for name, several in by_name.items()}


def _merge_parameters(several: Sequence[dict[str, str]], hook: Parameters) -> dict[str, str]:
    if len(several) == 1:
        return several[0]
    merged: dict[str, str] = {}
    for parameters in several:
        has_schedule = any(_schedule_word(key) for key in parameters)
        complete = (
            parameters if has_schedule else {**{k: v for k, v in hook.items() if _schedule_word(k)}, **parameters}
        )
        for key, value in complete.items():
            merged[key] = _merge_values(key, merged[key], value) if key in merged else value
    return merged


def _schedule_word(key: str) -> str:
    word = key.rpartition(".")[2]
    return word if word in _SCHEDULE else ""


def _merge_values(key: str, first: str, second: str) -> str:
    """Return the value that covers both values."""
    word = _schedule_word(key) or key
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
                f'{member} has the unknown parameter "{key}"; use {words}. {", ".join(_SCHEDULE)} can also have the '
                f"prefix {', '.join(f'{mode}.' for mode in MODES)}."
            )
        known[key](f"{member}.{key}", value)
    for mode in ("", *(f"{mode}." for mode in MODES)):
        start, end = given.get(f"{mode}start_step"), given.get(f"{mode}end_step")
        if start is not None and end is not None and int(end) <= int(start):
            raise InvalidRequest(
                f"{member} has {mode}start_step {start} and {mode}end_step {end}, so no step would be saved."
            )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _require_boolean(what: str, value: str) -> None:
    if value.strip().lower() not in (*_TRUE, *_FALSE):
        raise InvalidRequest(f'{what} is "{value}"; it must be "True" or "False".')


def _require_interval(what: str, value: str) -> None:
    if not value.strip().isdecimal() or int(value) < 1:
        raise InvalidRequest(f'{what} is "{value}"; it must be a whole number of steps, 1 or more.')


def _require_step(what: str, value: str) -> None:
    if not value.strip().isdecimal():
        raise InvalidRequest(f'{what} is "{value}"; it must be the number of a step, 0 or more.')


def _require_steps(what: str, value: str) -> None:
    if not _items(value) or not all(item.isdecimal() for item in _items(value)):
        raise InvalidRequest(f'{what} is "{value}"; it must be step numbers separated by commas, such as 0,10,20.')


def _require_regexes(what: str, value: str) -> None:
    for regex in _items(value):
        try:
            re.compile(regex)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidRequest(f"{what} has an invalid regular expression {regex!r}: {error}.") from error


def _require_reductions(what: str, value: str) -> None:
    plain = (*REDUCTIONS, *(f"{norm}_norm" for norm in NORMS))
    for item in _items(value):
        if item.removeprefix("abs_") not in plain:
            raise InvalidRequest(f'{what} has "{item}"; use {", ".join(plain)}, each also with the prefix abs_.')


def _require_workers(what: str, value: str) -> None:
    if value not in _WORKERS:
        raise InvalidRequest(f'{what} is "{value}"; it must be "one" or "all".')


def _require_budget(what: str, value: str) -> None:
    if value.lower() == _NO_LIMIT:
        return
    try:
        is_percent = 0 < float(value) <= 100
    except ValueError:
        is_percent = False
    if not is_percent:
        raise InvalidRequest(f'{what} is "{value}"; it must be a percentage of a step\'s time, or "none" for no limit.')


def _accept_any(_what: str, _value: str) -> None:
    """Accept any text."""


_SAVE_CHECKS: Mapping[str, Check] = {
    "save_interval": _require_interval,
    "save_steps": _require_steps,
    "start_step": _require_step,
    "end_step": _require_step,
}
_COMMON_CHECKS: Mapping[str, Check] = {
    **_SAVE_CHECKS,
    **{f"{mode}.{word}": check for mode in MODES for word, check in _SAVE_CHECKS.items()},
    "include_regex": _require_regexes,
    "reductions": _require_reductions,
    "save_raw_tensor": _require_boolean,
    "save_shape": _require_boolean,
}
_COLLECTION_CHECKS: Mapping[str, Check] = {**_COMMON_CHECKS, "save_histogram": _require_boolean}
_HOOK_CHECKS: Mapping[str, Check] = {
    **_COMMON_CHECKS,
    "save_all": _require_boolean,
    "include_workers": _require_workers,
    "export_tensorboard": _require_boolean,
    "tensorboard_dir": _accept_any,
    "dry_run": _require_boolean,
    "overhead_budget": _require_budget,
    "record_steps": _require_step,
}
