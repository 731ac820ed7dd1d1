"""A partitioned model with estimators: a script like the public example of smdistributed.modelparallel.

Its arguments are the package of the estimators, sagemaker or trainyard, and a CSV file of handwritten digits: 64 pixels
and the digit in each row.
"""

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

estimating: Any = importlib.import_module("estimating")

TRAIN = """
import argparse, json, os, pathlib, random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import smdistributed.modelparallel.torch as smp


class Net1(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, 1)
        self.conv2 = nn.Conv2d(16, 32, 3, 1)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        return torch.flatten(x, 1)


class Net2(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(128, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), 1)


class GroupedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = Net1()
        self.net2 = Net2()

    def forward(self, x):
        return self.net2(self.net1(x))


@smp.step
def train_step(model, data, target):
    output = model(data)
    loss = F.nll_loss(output, target, reduction="mean")
    model.backward(loss)
    return output, loss


@smp.step
def test_step(model, data, target):
    output = model(data)
    loss = F.nll_loss(output, target, reduction="sum").item()
    pred = output.argmax(dim=1, keepdim=True)
    correct = pred.eq(target.view_as(pred)).sum().item()
    return loss, correct


def train(model, device, train_loader, optimizer):
    model.train()
    for data, target in train_loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        _, loss_mb = train_step(model, data, target)
        loss = loss_mb.reduce_mean()
        optimizer.step()
    return loss.item()


def test(model, device, test_loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            loss_batch, correct_batch = test_step(model, data, target)
            test_loss += sum(loss_batch)
            correct += sum(correct_batch)
    return test_loss / len(test_loader.dataset), correct / len(test_loader.dataset)


def weights_of_one(train_set, epochs):
    # What one process makes of the batches that all replicas have together.
    torch.manual_seed(1)
    model = GroupedNet()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.9)
    for epoch in range(epochs):
        for data, target in DataLoader(train_set, batch_size=64 * smp.dp_size()):
            optimizer.zero_grad()
            F.nll_loss(model(data), target).backward()
            optimizer.step()
        scheduler.step()
    return model.state_dict()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--mp_parameters", type=str, default="")
    args = parser.parse_args()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    smp.init()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(smp.local_rank())
    rows = torch.tensor(np.loadtxt(pathlib.Path(os.environ["SM_CHANNEL_TRAINING"], "digits.csv"), delimiter=","))
    images, digits = rows[:, :-1].float().view(-1, 1, 8, 8) / 16, rows[:, -1].long()
    train_set = TensorDataset(images[:1536], digits[:1536])
    test_set = TensorDataset(images[1536:1792], digits[1536:1792])
    sampler = DistributedSampler(train_set, num_replicas=smp.dp_size(), rank=smp.dp_rank(), shuffle=False)
    train_loader = DataLoader(train_set, batch_size=64, sampler=sampler, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=64)

    model = GroupedNet()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    model = smp.DistributedModel(model)
    optimizer = smp.DistributedOptimizer(optimizer)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.9)
    for epoch in range(1, args.epochs + 1):
        train_loss = train(model, device, train_loader, optimizer)
        test_loss, accuracy = test(model, device, test_loader)
        scheduler.step()

    if smp.dp_rank() == 0:
        kept = os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "checkpoint.pt")
        model_dict, opt_dict = model.local_state_dict(), optimizer.local_state_dict()
        smp.save({"model_state_dict": model_dict, "optimizer_state_dict": opt_dict}, kept, partial=True)
        whole = model.state_dict()
        smp.save(whole, os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"), partial=False)
        if smp.mp_rank() == 0:
            plain = GroupedNet()
            plain.load_state_dict(whole)
            found = plain(test_set.tensors[0]).argmax(1).eq(test_set.tensors[1]).float().mean().item()
            alone = weights_of_one(train_set, args.epochs)
            apart = max((whole[name] - value).abs().max().item() for name, value in alone.items())
    smp.barrier()
    told = {
        "rank": smp.rank(),
        "host": os.environ["SM_CURRENT_HOST"],
        "place": [smp.pp_rank(), smp.pp_size(), smp.dp_rank(), smp.dp_size()],
        "held": sorted(name for name, _ in model.named_parameters()),
        "loss": train_loss,
        "accuracy": accuracy,
        "whole": found if smp.rank() == 0 else None,
        "apart": apart if smp.rank() == 0 else None,
        "parameters": args.mp_parameters,
    }
    pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], f"{smp.rank():02}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
"""
PARAMETERS = {
    "partitions": 2,
    "microbatches": 4,
    "placement_strategy": "spread",
    "pipeline": "interleaved",
    "optimize": "speed",
    "ddp": True,
}
NAMES = {
    "net1": ["net1.conv1.bias", "net1.conv1.weight", "net1.conv2.bias", "net1.conv2.weight"],
    "net2": ["net2.fc1.bias", "net2.fc1.weight", "net2.fc2.bias", "net2.fc2.weight"],
}


def main(package: str, digits: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kit = estimating.kit_of(package, folder)
        location = kit.put({"digits.csv": Path(digits).read_bytes()})
        job = kit.estimator(TRAIN, instance_count=2, distribution=distribution(PARAMETERS))
        job.fit({"training": location}, logs=False)
        is_in_parts(kit, job)
        is_refused(kit)


def distribution(parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}},
        "mpi": {"enabled": True, "processes_per_host": 2},
    }


def is_in_parts(kit: Any, job: Any) -> None:
    """Each instance has one partition, twice; both replicas are equal, and the model is as accurate as its parts."""
    files = kit.archived(f"{job.model_data.removesuffix('/model.tar.gz')}/output.tar.gz")
    told = [json.loads(files[f"{rank:02}.json"]) for rank in range(4)]
    assert [each["host"] for each in told] == ["algo-1", "algo-1", "algo-2", "algo-2"]
    assert [each["place"] for each in told] == [[0, 2, 0, 2], [0, 2, 1, 2], [1, 2, 0, 2], [1, 2, 1, 2]]
    assert [each["held"] for each in told] == [NAMES["net1"]] * 2 + [NAMES["net2"]] * 2
    assert {each["accuracy"] for each in told} == {told[0]["whole"]}
    assert told[0]["apart"] < 1e-4, told[0]
    # One process reaches this accuracy after as many steps.
    assert told[0]["accuracy"] > 0.6, told[0]
    assert (told[0]["loss"], told[1]["loss"]) == (told[2]["loss"], told[3]["loss"])
    assert "microbatches=4,optimize=speed,partitions=2" in told[0]["parameters"]
    assert {"checkpoint.pt_0", "checkpoint.pt_1"} <= files.keys()
    assert set(kit.archived(job.model_data)) == {"model.pt"}


def is_refused(kit: Any) -> None:
    refused = ""
    try:
        kit.estimator("print('never')", distribution=distribution(PARAMETERS | {"partitions": 3})).fit(wait=False)
    except Exception as error:
        # Each package has its own error.
        refused = str(error)
    assert "partitions 3, but the job has 2 ranks; their number must be a multiple of 3" in refused, refused


main(*sys.argv[1:])
