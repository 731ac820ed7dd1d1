import pytest

from trainyard.foundation.errors import AlreadyExists, InvalidRequest, NotFound, TrainyardError
from trainyard.wire.fault import Fault, FaultRow, FaultTable

TABLE = FaultTable(
    {NotFound: FaultRow("NoSuchThing", 404), AlreadyExists: FaultRow("Taken", 409)},
    not_found={"pot": FaultRow("NoSuchPot", 404, "PotName", words="Pot {name} is missing.")},
    already_exists={"pot": FaultRow("PotTaken", 409, words="Pot {name} is there.")},
)


@pytest.mark.parametrize(
    ("error", "code", "status", "message"),
    [
        (NotFound("pot", "a{b}"), "NoSuchPot", 404, "Pot a{b} is missing."),
        (AlreadyExists("pot", "a"), "PotTaken", 409, "Pot a is there."),
        (NotFound("pan", "a"), "NoSuchThing", 404, 'There is no pan named "a".'),
        (AlreadyExists("pan", "a"), "Taken", 409, 'A pan named "a" already exists.'),
        (InvalidRequest("no"), "ValidationException", 400, "no"),
    ],
)
def test_a_table_gives_an_error_its_code_and_words(error: TrainyardError, code: str, status: int, message: str) -> None:
    fault = TABLE.fault(error)
    assert (fault.code, fault.status, fault.message) == (code, status, message)


def test_the_member_of_a_fault_names_what_was_not_found() -> None:
    assert TABLE.fault(NotFound("pot", "a")).members == {"PotName": "a"}


def test_a_fault_stays_as_it_is() -> None:
    fault = Fault("Odd", "as raised")
    assert TABLE.fault(fault) is fault
