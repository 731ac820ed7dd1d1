import argparse
import json
import logging
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

logger = logging.getLogger(__name__)
logger.setLevel(logging.DEBUG)
logger.addHandler(logging.StreamHandler(sys.stdout))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, kernel_size=3, padding=1)
        self.dropout = nn.Dropout2d(0.1)
        self.fc = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.dropout(self.conv2(x))), 2)
        return F.log_softmax(self.fc(x.flatten(1)), dim=1)


def loader(folder, batch_size, shuffle):
    table = np.loadtxt(os.path.join(folder, "digits.csv"), delimiter=",", dtype=np.float32)
    images = torch.from_numpy(table[:, :-1] / 16).reshape(-1, 1, 8, 8)
    return DataLoader(TensorDataset(images, torch.from_numpy(table[:, -1]).long()), batch_size, shuffle=shuffle)


def train(args):
    torch.manual_seed(args.seed)
    logger.debug("Hosts: %s, current: %s, gpus: %d", args.hosts, args.current_host, args.num_gpus)
    device = torch.device("cuda" if args.num_gpus > 0 else "cpu")
    train_loader = loader(args.data_dir, args.batch_size, shuffle=True)
    test_loader = loader(args.test_dir, args.test_batch_size, shuffle=False)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    for epoch in range(1, args.epochs + 1):
        model.train()
        for batch, (data, target) in enumerate(train_loader, 1):
            optimizer.zero_grad()
            loss = F.nll_loss(model(data.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
            if batch % args.log_interval == 0:
                logger.info("Train Epoch: %d [%d/%d] Loss: %.6f", epoch, batch, len(train_loader), loss.item())
        test(model, test_loader, device)
    with open(os.path.join(args.model_dir, "model.pth"), "wb") as file:
        torch.save(model.cpu().state_dict(), file)


def test(model, test_loader, device):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            correct += (model(data.to(device)).argmax(1) == target.to(device)).sum().item()
    count = len(test_loader.dataset)
    logger.info("Test set: Accuracy: %d/%d (%.1f%%)\n", correct, count, 100.0 * correct / count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--test-batch-size", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--backend", type=str, default=None)
    parser.add_argument("--hosts", type=list, default=json.loads(os.environ["SM_HOSTS"]))
    parser.add_argument("--current-host", type=str, default=os.environ["SM_CURRENT_HOST"])
    parser.add_argument("--model-dir", type=str, default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--data-dir", type=str, default=os.environ["SM_CHANNEL_TRAINING"])
    parser.add_argument("--test-dir", type=str, default=os.environ["SM_CHANNEL_TESTING"])
    parser.add_argument("--num-gpus", type=int, default=os.environ["SM_NUM_GPUS"])
    train(parser.parse_args())
