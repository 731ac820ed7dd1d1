"""Objects of the SDK show themselves in notebooks, with a real kernel on a real yard."""

from pathlib import Path

import pytest

import trainyard
from tests.conformance.conftest import Person

SOURCE = Path(trainyard.__file__).parents[1]


@pytest.mark.slow
def test_jobs_trials_and_tuners_are_shown_while_they_run(person: Person) -> None:
    person.run("notebook_with_jupyter", "jupyter", {**person.exports(), "PYTHONPATH": str(SOURCE)})
