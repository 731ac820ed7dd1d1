"""What to save of a tensor: reductions, its shape, or all its values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..exceptions import SMDebugValueError

ALLOWED_REDUCTIONS = ["min", "max", "mean", "std", "variance", "sum", "prod"]
ALLOWED_NORMS = ["l1", "l2"]
ALLOWED_PARAMS = ["reductions", "abs_reductions", "norms", "abs_norms", "save_raw_tensor", "save_shape"]

_ABS, _NORM = "abs_", "_norm"


@dataclass(init=False)
class ReductionConfig:
    """Reductions and norms of a tensor and of its absolute values, and whether to save its shape and values too."""

    reductions: list[str]
    abs_reductions: list[str]
    norms: list[str]
    abs_norms: list[str]
    save_raw_tensor: bool
    save_shape: bool

    def __init__(
        self,
        reductions: list[str] | None = None,
        abs_reductions: list[str] | None = None,
        norms: list[str] | None = None,
        abs_norms: list[str] | None = None,
        save_raw_tensor: bool = False,
        save_shape: bool = False,
    ) -> None:
        self.reductions = _check_words("reductions", reductions, ALLOWED_REDUCTIONS)
        self.abs_reductions = _check_words("abs_reductions", abs_reductions, ALLOWED_REDUCTIONS)
        self.norms = _check_words("norms", norms, ALLOWED_NORMS)
        self.abs_norms = _check_words("abs_norms", abs_norms, ALLOWED_NORMS)
        self.save_raw_tensor = _check_bool("save_raw_tensor", save_raw_tensor)
        self.save_shape = _check_bool("save_shape", save_shape)

    @property
    def words(self) -> list[str]:
        """All reductions in the words of configuration files, such as abs_l2_norm."""
        return [
            *self.reductions,
            *(f"{norm}{_NORM}" for norm in self.norms),
            *(f"{_ABS}{reduction}" for reduction in self.abs_reductions),
            *(f"{_ABS}{norm}{_NORM}" for norm in self.abs_norms),
        ]

    def to_json_dict(self) -> dict[str, Any]:
        return {
            "save_raw_tensor": self.save_raw_tensor,
            "reductions": ",".join(self.words),
            "save_shape": self.save_shape,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, Any] | None) -> "ReductionConfig | None":
        """Parse a configuration: reductions are comma-separated words, flags are booleans or words."""
        if params is None:
            return None
        if not isinstance(params, Mapping):
            raise SMDebugValueError(f"{params!r} is not a dict of reductions, save_raw_tensor and save_shape.")
        words = [word for each in str(params.get("reductions", "")).split(",") if (word := each.strip())]
        return cls(
            reductions=[word for word in words if not word.startswith(_ABS) and not word.endswith(_NORM)],
            abs_reductions=[
                word.removeprefix(_ABS) for word in words if word.startswith(_ABS) and not word.endswith(_NORM)
            ],
            norms=[word.removesuffix(_NORM) for word in words if not word.startswith(_ABS) and word.endswith(_NORM)],
            abs_norms=[
                word.removeprefix(_ABS).removesuffix(_NORM)
                for word in words
                if word.startswith(_ABS) and word.endswith(_NORM)
            ],
            save_raw_tensor=_parse_bool(params.get("save_raw_tensor", False)),
            save_shape=_parse_bool(params.get("save_shape", False)),
        )

    @classmethod
    def from_json(cls, json_str: str) -> "ReductionConfig | None":
        return cls.from_dict(json.loads(json_str))


def _check_words(name: str, words: list[str] | None, allowed: list[str]) -> list[str]:
    unknown = [word for word in words or [] if word not in allowed]
    if unknown:
        raise SMDebugValueError(f"{name} has {', '.join(map(repr, unknown))}; it may have {', '.join(allowed)}.")
    return list(words or [])


def _check_bool(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise SMDebugValueError(f"{name} is {value!r}; it must be True or False.")
    return value


def _parse_bool(value: object) -> bool:
    # Jobs send all parameters as strings. smdebug accepts only booleans here and raises for "True".
    return value is True or str(value).lower() == "true"
