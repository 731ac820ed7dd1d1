"""A parameter server for PyTorch: workers push gradients and pull parameters without waiting for each other.

    from trainyard.parameter_server import Worker

    model = Net()
    with Worker(model.named_parameters(), optimizer="SGD", lr=0.05, momentum=0.9) as server:
        for inputs, targets in batches:
            server.pull()
            model.zero_grad()
            loss(model(inputs), targets).backward()
            server.push()
        server.finish()
    if server.rank == 0:
        torch.save(model.state_dict(), ...)

A job with `distribution={"parameter_server": {"enabled": True}}` runs one server on each instance. The servers share
the parameters among them; each steps its own optimizer with every gradient it receives. The worker with rank 0 sets the
initial values. A worker may exit at any time; another one with the same rank pulls the parameters and continues.

A launcher sets these variables: TRAINYARD_PS_HOSTS, such as "algo-1:7001,algo-2:7001", lists the servers in order, and
TRAINYARD_PS_TOKEN is a secret that servers and workers share. A worker also gets RANK and WORLD_SIZE, which count
workers. `python -m trainyard.parameter_server` starts a server. It listens only at its own entry of TRAINYARD_PS_HOSTS:
that of SM_CURRENT_HOST or else of the host name, or number TRAINYARD_PS_INDEX where several entries have that name. It
exits with status 0 when every worker is done. If TRAINYARD_PS_CHECKPOINTS names a folder, the server saves its state
there every TRAINYARD_PS_CHECKPOINT_S seconds (default 30) and when it exits, also on SIGTERM, and restores it when it
starts.
"""

from trainyard.instance.parameter_server.config import ParameterServerConfig
from trainyard.instance.parameter_server.main import main
from trainyard.instance.parameter_server.worker import Worker

__all__ = ["ParameterServerConfig", "Worker"]

if __name__ == "__main__":
    main()
