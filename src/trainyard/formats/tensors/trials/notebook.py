"""A trial as notebooks show it."""

from typing import TYPE_CHECKING

from trainyard.formats.tensors.contract import Kind
from trainyard.foundation.notebook_html import card, curve, table
from trainyard.foundation.notebook_live import View

if TYPE_CHECKING:
    from trainyard.formats.tensors.trials.trial import Trial

_MAX_LOSSES = 5
# Of a long training, so that the document stays small.
_MAX_POINTS = 2000


def view_trial(trial: "Trial") -> View:
    """Return a trial as it is now."""
    html = trial_html(trial)
    with trial.no_refresh():
        return View(html, repr(trial), trial.loaded_all_steps)


def trial_html(trial: "Trial") -> str:
    """Return how far the training has come, what it has captured, and the curves of its losses."""
    with trial.no_refresh():
        trial.refresh()
        steps, tensors = trial.steps(known=True), trial.tensors()
        losses = [name for name, info in tensors.items() if info.kind is Kind.LOSS and info.size == 1]
        return card(
            f"Trial {trial.name}",
            {
                "steps": f"{len(steps)}, the last is {steps[-1]}" if steps else "none yet",
                "modes": ", ".join(mode.value for mode in trial.modes()),
                "workers": ", ".join(trial.workers()),
                "tensors": f"{len(tensors)}, {len(trial.tensor_names())} of them saved",
                "training": "has ended" if trial.loaded_all_steps else "in progress",
            },
            table(("loss", "last value", ""), [_row(trial, name) for name in losses[:_MAX_LOSSES]]),
        )


def _row(trial: "Trial", name: str) -> tuple[str, str, str]:
    values = trial.series(name).values
    few = values[:: max(1, len(values) // _MAX_POINTS)].tolist()
    return name, f"{values[-1]:.6g}" if len(values) else "", curve(few)
