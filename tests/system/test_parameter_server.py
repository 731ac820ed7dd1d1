"""Parameter servers and their workers, in threads and in processes of this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.system.ranks import parameter_server_program as program
from trainyard.foundation.errors import InvalidRequest, NotPermitted, Unavailable
from trainyard.instance.parameter_server.config import Address, ParameterServerConfig
from trainyard.instance.parameter_server.connection import authenticate_server
from trainyard.instance.parameter_server.frames import TensorFrame, receive_frame, send_frame
from trainyard.instance.parameter_server.main import checkpoint_path, serve
from trainyard.instance.parameter_server.server import ParameterServer
from trainyard.instance.parameter_server.state import ParameterState
from trainyard.parameter_server import Worker

TOKEN = "only the ranks of this job know it"


@contextmanager
def serving(count: int = 1) -> Iterator[tuple[list[ParameterState], ParameterServerConfig]]:
    """Servers in threads, and what a worker that is alone has to know of them."""
    states = [ParameterState() for _ in range(count)]
    with ExitStack() as stack:
        servers = [ParameterServer(state, token=TOKEN, save=lambda: None) for state in states]
        addresses = tuple(stack.enter_context(each.listening(Address("127.0.0.1", 0))) for each in servers)
        yield states, ParameterServerConfig(addresses, TOKEN)


def net() -> torch.nn.Module:
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def examples() -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(8)
    return [torch.randn(5, 3, generator=drawn) for _ in range(6)]


def weights(model: torch.nn.Module) -> list[float]:
    return [float(value) for parameter in model.parameters() for value in parameter.detach().flatten()]


@pytest.mark.flow
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [("SGD", {"lr": 0.1, "momentum": 0.9}), ("Adam", {"lr": 0.01, "betas": (0.8, 0.95)})],
)
@pytest.mark.parametrize("servers", [1, 2, 7])
def test_one_worker_gets_what_it_would_have_computed_alone(optimizer: str, options: Any, servers: int) -> None:
    alone, model = net(), net()
    local = getattr(torch.optim, optimizer)(alone.parameters(), **options)
    with (
        serving(servers) as (_, around),
        Worker(model.named_parameters(), optimizer=optimizer, config=around, **options) as server,
    ):
        for rows in examples():
            local.zero_grad()
            alone(rows).square().mean().backward()
            local.step()
            model.zero_grad()
            model(rows).square().mean().backward()
            server.push()
            server.pull()
    assert weights(model) == pytest.approx(weights(alone), rel=1e-6)


def test_an_option_of_a_push_holds_from_then_on() -> None:
    value = {"x": torch.zeros(2)}
    with serving() as (_, around), Worker(value, lr=1.0, config=around) as server:
        server.push({"x": torch.ones(2)})
        server.push({"x": torch.ones(2)}, lr=0.25)
        server.push({"x": torch.ones(2)})
        server.pull()
    assert value["x"].tolist() == [-1.5, -1.5]


def test_a_parameter_without_a_gradient_stays() -> None:
    values = {"x": torch.zeros(1), "y": torch.zeros(1)}
    with serving(2) as (_, around), Worker(values, lr=1.0, weight_decay=0.1, config=around) as server:
        server.push({"x": torch.ones(1)})
        server.pull()
    assert [values["x"].item(), values["y"].item()] == [-1.0, 0.0]


def test_staleness_is_counted_and_gradients_that_are_too_stale_are_dropped() -> None:
    one, two = {"x": torch.zeros(1)}, {"x": torch.zeros(1)}
    with serving() as (_, around):
        first = Worker(one, lr=1.0, config=around)
        second = Worker(two, lr=1.0, max_staleness=1, config=around)
        for _ in range(2):
            first.push({"x": torch.ones(1)})
        first.pull()
        second.push({"x": torch.ones(1)})
        second.pull()
        assert (second.staleness, second.dropped, two["x"].item()) == (2, 1, -2.0)
        second.push({"x": torch.ones(1)})
        second.pull()
        assert (second.staleness, second.dropped, two["x"].item()) == (0, 1, -3.0)
        first.close()
        second.close()


def test_a_worker_with_another_model_is_refused() -> None:
    with serving() as (_, around), Worker({"x": torch.zeros(2)}, lr=1.0, config=around):
        with pytest.raises(InvalidRequest, match="all workers, and the checkpoint, must have the same model"):
            Worker({"y": torch.zeros(2)}, lr=1.0, config=around)
        with pytest.raises(InvalidRequest, match=r"has shape \(3,\)"):
            Worker({"x": torch.zeros(3)}, lr=1.0, config=around)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"optimizer": "LBFGS"}, "not support the optimizer LBFGS; use SGD, Adam"),
        ({"speed": 3}, "unexpected keyword argument"),
    ],
)
def test_an_optimizer_that_cannot_be_made_is_refused(options: dict[str, Any], complaint: str) -> None:
    with serving() as (_, around), pytest.raises(InvalidRequest, match=complaint):
        Worker({"x": torch.zeros(2)}, config=around, **options)


def test_gradients_for_an_unknown_parameter_are_refused() -> None:
    with (
        serving() as (_, around),
        Worker({"x": torch.zeros(2)}, config=around) as server,
        pytest.raises(InvalidRequest, match="gradients for unknown parameters: y"),
    ):
        server.push({"y": torch.zeros(2)})


def test_a_worker_that_does_not_know_the_secret_is_refused() -> None:
    with serving() as (states, around):
        stranger = ParameterServerConfig(around.servers, "a guess")
        with pytest.raises(NotPermitted, match="does not know the job's secret"):
            Worker({"x": torch.zeros(2)}, config=stranger)
        assert not states[0].wait(0)


def test_a_worker_does_not_talk_to_a_server_that_does_not_know_the_secret() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def pose() -> None:
            connection, _ = impostor.accept()
            with connection:
                send_frame(connection, TensorFrame({"protocol": 1, "nonce": "0" * 32}))
                receive_frame(connection)
                send_frame(connection, TensorFrame({"proof": "0" * 64}))

        posing = threading.Thread(target=pose)
        posing.start()
        around = ParameterServerConfig((Address("127.0.0.1", impostor.getsockname()[1]),), TOKEN)
        with pytest.raises(NotPermitted, match="does not know the job's secret"):
            Worker({"x": torch.zeros(2)}, config=around)
        posing.join()


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x05hello",
        b'\x00\x00\x00\x3a{"do": "pull", "tensors": [["x", "float32", [1073741824]]]}',
        b"",
    ],
)
def test_messages_of_strangers_close_their_connection_and_harm_nobody(sent: bytes) -> None:
    with serving() as (_, around), Worker({"x": torch.ones(2)}, lr=1.0, config=around) as server:
        with socket.create_connection(("127.0.0.1", around.servers[0].port), timeout=10) as stranger:
            receive_frame(stranger)
            with suppress(OSError):  # it may close before it has read all
                stranger.sendall(sent)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4096):
                    pass
        server.push({"x": torch.ones(2)})
        server.pull()
        assert server.rank == 0


def test_a_push_that_breaks_off_is_as_if_it_had_never_been() -> None:
    value = {"x": torch.zeros(1000)}
    with serving() as (states, around), Worker(value, lr=1.0, config=around) as server:
        with socket.create_connection(("127.0.0.1", around.servers[0].port), timeout=10) as dying:
            authenticate_server(dying, TOKEN, rank=0, size=1)
            words = {"do": "push", "since": 0, "options": {}, "max_staleness": None}
            head = json.dumps({**words, "tensors": [["x", "float32", [1000]]]}).encode()
            dying.sendall(len(head).to_bytes(4, "big") + head + bytes(2000))
        server.pull()
        assert (states[0].version, value["x"].abs().sum().item()) == (0, 0.0)


@pytest.mark.parametrize("words", [{"do": "fly"}, {}, {"do": "push"}, {"do": "begin", "optimizer": 3, "options": None}])
def test_an_unreadable_message_is_answered_with_an_error(words: dict[str, Any]) -> None:
    with serving() as (_, around), socket.create_connection(("127.0.0.1", around.servers[0].port), timeout=10) as odd:
        authenticate_server(odd, TOKEN, rank=0, size=1)
        send_frame(odd, TensorFrame(words))
        assert "A parameter server" in receive_frame(odd).message["error"]


def test_a_server_listens_at_its_own_address_only() -> None:
    server = ParameterServer(ParameterState(), token=TOKEN, save=lambda: None)
    with server.listening(Address("127.0.0.2", 0)) as address:
        with socket.create_connection(("127.0.0.2", address.port), timeout=10):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", address.port), timeout=10)


def test_a_worker_says_when_no_server_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    around = ParameterServerConfig((Address("127.0.0.1", port),), TOKEN)
    with pytest.raises(Unavailable, match=f"No parameter server answers at 127.0.0.1:{port} after 0.2 s"):
        Worker({"x": torch.zeros(1)}, timeout_s=0.2, config=around)


def test_a_server_resumes_from_its_checkpoint(tmp_path: Path, free_port: Callable[[], int]) -> None:
    servers = (Address("127.0.0.1", free_port()),)
    of_server = ParameterServerConfig(servers, TOKEN, index=0, checkpoints=tmp_path, checkpoint_s=30.0)
    straight = {"x": torch.zeros(2)}
    with serving() as (_, around), Worker(straight, lr=0.5, momentum=0.9, config=around) as one:
        for _ in range(4):
            one.push({"x": torch.ones(2)})
        one.pull()
    broken = {"x": torch.zeros(2)}
    for _ in range(2):
        running = threading.Thread(target=serve, args=(of_server,))
        running.start()
        with Worker(broken, lr=0.5, momentum=0.9, config=ParameterServerConfig(servers, TOKEN)) as worker:
            for _ in range(2):
                worker.push({"x": torch.ones(2)})
            worker.save()
            assert checkpoint_path(of_server) == tmp_path / "parameters-0-of-1.pt"
            worker.finish()
        running.join(timeout=30)
        assert not running.is_alive()
    assert broken["x"].tolist() == pytest.approx(straight["x"].tolist())
    assert [path.name for path in tmp_path.iterdir()] == ["parameters-0-of-1.pt"]


@pytest.fixture
def free_port() -> Callable[[], int]:
    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as free:
            return int(free.getsockname()[1])

    return find


def test_training_continues_when_a_worker_is_killed_and_replaced(tmp_path: Path, free_port: Callable[[], int]) -> None:
    """Two servers and three workers, in processes of their own, which the program forks."""
    ports = [free_port(), free_port()]
    environment = os.environ | {
        "TRAINYARD_PS_HOSTS": ",".join(f"127.0.0.1:{port}" for port in ports),
        "TRAINYARD_PS_TOKEN": TOKEN,
        "TRAINYARD_PS_CHECKPOINTS": str(tmp_path / "checkpoints"),
        "WORLD_SIZE": "3",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, program.__file__, str(tmp_path)]
    run = subprocess.run(command, env=environment, timeout=120, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    torch.testing.assert_close(torch.tensor(found["weight"]), program.TRUTH, atol=0.02, rtol=0)
    assert found["bias"] == pytest.approx([1.0, 1.0], abs=0.02)
    assert found["stale"] > 0
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_a_server_that_is_asked_to_end_saves_first(tmp_path: Path, free_port: Callable[[], int]) -> None:
    port = free_port()
    environment = os.environ | {
        "TRAINYARD_PS_HOSTS": f"127.0.0.1:{port}",
        "TRAINYARD_PS_TOKEN": TOKEN,
        "TRAINYARD_PS_CHECKPOINTS": str(tmp_path),
        "TRAINYARD_PS_INDEX": "0",
    }
    with _server(environment) as server:
        around = ParameterServerConfig((Address("127.0.0.1", port),), TOKEN)
        worker = Worker({"x": torch.zeros(2)}, lr=1.0, config=around)
        worker.push({"x": torch.ones(2)})
        worker.pull()
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 128 + signal.SIGTERM
        with (
            pytest.raises(Unavailable, match=f"Lost the connection to the parameter server at 127.0.0.1:{port}"),
            worker,
        ):
            worker.pull()
    state = ParameterState()
    state.load(tmp_path / "parameters-0-of-1.pt")
    version, kept = state.pull()
    assert (version, kept["x"].tolist()) == (1, [-1.0, -1.0])


@contextmanager
def _server(environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-m", "trainyard.parameter_server"], env=environment) as server:
        try:
            yield server
        finally:
            server.kill()
