import pytest

from trainyard._sdk.connection import find_yard
from trainyard.cli.yard import reachability
from trainyard.cli.yard.reachability import login_lines
from trainyard.foundation.home import Home


@pytest.mark.usefixtures("command_context")
def test_a_yard_on_the_loopback_address_is_reached_by_ssh_and_has_a_fingerprint(
    yard: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "authority_fingerprint", lambda _: "5A:0C")
    lines = list(login_lines(find_yard(yard)))

    assert lines[0].startswith("Other machines cannot reach this yard, because it listens on 127.0.0.1 only.")
    assert "  trainyard down && trainyard up --detach --host 0.0.0.0" in lines
    assert any("ssh -N -L 4781:127.0.0.1:4781 HOST" in line for line in lines)
    assert "  trainyard login https://127.0.0.1:4781" in lines
    assert lines[-1] == "  5A:0C"
