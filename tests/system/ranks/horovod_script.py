"""A script for Horovod as tutorials have it, on digits of 8 by 8 pixels. Alone, it takes the batches of all ranks."""

import os

import horovod.torch as hvd
import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1 = nn.Linear(6 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


# Initialize Horovod
hvd.init()

# Pin GPU to be used to process local rank (one GPU per process)
device = "cpu"
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())
    device = "cuda"

images, digits = load_digits(return_X_y=True)
trainset = TensorDataset(
    torch.tensor(images[:120] / 16.0, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(digits[:120])
)
sampler = DistributedSampler(trainset, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
trainloader = DataLoader(trainset, batch_size=12 // hvd.size(), sampler=sampler)

torch.manual_seed(hvd.rank())
net = Net().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

# Add Horovod Distributed Optimizer
optimizer = hvd.DistributedOptimizer(optimizer,
                         named_parameters=net.named_parameters())  # fmt: skip

# Broadcast parameters from rank 0 to all other processes.
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

for _epoch in range(2):  # loop over the dataset multiple times
    for data in trainloader:
        inputs, labels = data[0].to(device), data[1].to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()

if hvd.rank() == 0:
    model_dir = os.environ.get("SM_MODEL_DIR", "/tmp")
    torch.save(net.state_dict(), os.path.join(model_dir, "net.pth"))  # noqa: PTH118
