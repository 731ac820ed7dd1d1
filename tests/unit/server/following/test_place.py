import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.following import Place
from trainyard.server.records.contract import ResourceId

JOB = ResourceId("01a1de26-54cb-7e8b-aa83-2f443d1f2fc2")
OTHER = ResourceId("01a1de26-54cb-7e8b-aa83-2f443d1f2fc3")


def test_a_cursor_names_the_place_it_was_made_of() -> None:
    for place in (Place.before(JOB), Place(JOB[-12:], 3, 1, 2, (0, 2**62))):
        assert Place.parse(str(place), JOB) == place


def test_the_cursor_of_another_job_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="of another job"):
        Place.parse(str(Place.before(OTHER)), JOB)


@pytest.mark.parametrize(
    "cursor", ["", "x", "2f443d1f2fc2", "2f443d1f2fc2.1.2", "2f443d1f2fc2.1.2.-1", "2f443d1f2fc2.1.2.3."]
)
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidRequest, match="none of FollowJob's"):
        Place.parse(cursor, JOB)
