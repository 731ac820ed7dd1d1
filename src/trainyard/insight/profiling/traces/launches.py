"""Who launched what: the work of devices, joined to the calls and operators of the program."""

from dataclasses import dataclass

import numpy as np

from trainyard.formats.profiles.traces.contract import DEVICE_KINDS, EventKind, EventTable, Whole

NONE = -1


@dataclass(frozen=True, slots=True)
class Launches:
    """The rows of all events of devices, with the row of the call that launched each; -1 if it is not in the trace."""

    devices: Whole
    callers: Whole


def find_launches(events: EventTable) -> Launches:
    devices = np.flatnonzero(events.of_kind(*DEVICE_KINDS))
    callers = np.flatnonzero(events.of_kind(EventKind.RUNTIME) & (events.correlations > 0))
    found = look_up(events.correlations[callers], callers, events.correlations[devices])
    return Launches(devices, found)


def look_up(keys: Whole, values: Whole, wanted: Whole) -> Whole:
    """Return the value of each wanted key; -1 for keys that are absent or not positive."""
    if not len(keys):
        return np.full(len(wanted), NONE)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: Whole = np.where((keys[place] == wanted) & (wanted > 0), values[order][place], NONE)
    return found
