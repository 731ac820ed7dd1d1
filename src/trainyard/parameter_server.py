"""A parameter server for PyTorch: workers push gradients and pull parameters, none waiting for another.

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

On each instance of a job with `distribution={"parameter_server": {"enabled": True}}` there is a server, which keeps a
share of the parameters and steps its own optimizer with each gradient that comes. The first values are those of the
worker with rank 0. A worker may end at any time; another one with its rank pulls, and goes on.

What a launcher sets: TRAINYARD_PS_HOSTS, such as "algo-1:7001,algo-2:7001", the servers in their order, and
TRAINYARD_PS_TOKEN, a secret that servers and workers share; for a worker also RANK and WORLD_SIZE, counting workers.
A server is `python -m trainyard.parameter_server`. It listens at its own entry of TRAINYARD_PS_HOSTS only: the one of
SM_CURRENT_HOST or else of the host's name, or number TRAINYARD_PS_INDEX where several have that name. It ends with
status 0 when every worker is done. Where TRAINYARD_PS_CHECKPOINTS names a folder, it keeps its state there, every
TRAINYARD_PS_CHECKPOINT_S seconds (30) and when it ends, by SIGTERM too; when it starts, it begins with what is there.
"""

from trainyard.instance.parameter_server.main import main
from trainyard.instance.parameter_server.surroundings import Surroundings
from trainyard.instance.parameter_server.worker import Worker

__all__ = ["Surroundings", "Worker"]

if __name__ == "__main__":
    main()
