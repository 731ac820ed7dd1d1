import torch
from torch import nn

from trainyard.instance.hook.profiling.memory_holders import MemoryHolders

PARAMETERS = (1000 * 500 + 500) * 4


def train(holders: MemoryHolders, *, steps: int) -> dict[str, int]:
    model = nn.Linear(1000, 500)
    optimizer = torch.optim.Adam(model.parameters())
    for number in range(1, steps + 1):
        optimizer.zero_grad()
        model(torch.ones(8, 1000)).sum().backward()
        if number == holders.next_look:
            holders.observe_step([model], [optimizer])
        optimizer.step()
    return {each["name"]: each["bytes"] for each in holders.facts()}


def test_a_training_holds_parameters_gradients_and_two_moments_of_each() -> None:
    found = train(MemoryHolders(), steps=3)
    assert found["parameters"] == found["gradients"] == PARAMETERS
    assert 2 * PARAMETERS <= found["optimizer"] <= 2 * PARAMETERS + 64
    assert list(found) == ["parameters", "gradients", "optimizer", "libraries", "other"]
    assert found["libraries"] > 0


def test_what_the_process_took_at_most_is_explained_as_a_whole() -> None:
    holders = MemoryHolders()
    before = sum(train(holders, steps=3).values())
    batch = torch.ones(50_000_000)
    del batch
    assert sum(each["bytes"] for each in holders.facts()) >= before
    assert sum(each["bytes"] for each in holders.facts()) >= 200_000_000


def test_nothing_is_known_before_the_optimizer_has_a_state() -> None:
    assert train(MemoryHolders(), steps=1) == {}


def test_cuda_stays_uninitialized() -> None:
    train(MemoryHolders(), steps=3)
    assert not torch.cuda.is_initialized()
