from pathlib import Path

from trainyard.foundation.hidden_paths import hidden_paths, outermost


def test_the_yard_and_the_homes_of_people_are_hidden() -> None:
    places = hidden_paths(Path("/srv/yard"))
    assert {Path("/srv/yard"), Path("/home"), Path("/root")} <= set(places)


def test_a_place_in_another_is_hidden_with_it() -> None:
    homes = [Path("/home/anna"), Path("/home"), Path("/opt/service"), Path("/opt/service/yard")]
    assert outermost(homes) == (Path("/home"), Path("/opt/service"))


def test_what_holds_the_system_is_never_hidden() -> None:
    assert outermost([Path("/"), Path("/usr"), Path("/opt"), Path("relative")]) == ()
