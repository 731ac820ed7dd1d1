"""The trainings that `hook_steps.py` times: small ones for a CPU, GPT-2 small and ResNet-18 for a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention


@dataclass(slots=True)
class Training:
    """A model on its device, with an optimizer and one batch that is used again and again."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    inputs: torch.Tensor
    labels: torch.Tensor
    # Whether it uses bfloat16 by autocast.
    is_mixed: bool = False
    # Called between the backward pass and the update.
    look: Callable[[], None] | None = None

    def step(self) -> None:
        self.optimizer.zero_grad()
        with torch.autocast(self.inputs.device.type, torch.bfloat16, enabled=self.is_mixed):
            outputs = self.model(self.inputs)
            loss = cross_entropy(outputs.flatten(0, -2), self.labels.flatten())
        loss.backward()
        if self.look is not None:
            self.look()
        self.optimizer.step()


def mlp(device: str) -> Training:
    """Three layers, 0.67 million parameters; a batch of 64."""
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return _training(nn.Sequential(*layers).to(device), torch.randn(64, 784, device=device), classes=10)


def cnn(device: str) -> Training:
    """Four convolutions with normalisation, 0.25 million parameters; a batch of 32 images of 3 x 32 x 32."""
    widths = (3, 32, 64, 96, 128)
    layers: list[nn.Module] = []
    for before, width in pairwise(widths):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(512, 96), nn.ReLU(), nn.Linear(96, 10)]
    return _training(nn.Sequential(*layers).to(device), torch.randn(32, 3, 32, 32, device=device), classes=10)


def transformer(device: str) -> Training:
    """Six layers of width 128, 1.7 million parameters; 4 sequences of 64 tokens."""
    return _language_training(Decoder(vocabulary=4096, length=64, width=128, layers=6, heads=4), 4, device=device)


def gpt2(device: str) -> Training:
    """GPT-2 small: 12 layers of width 768, 124 million parameters, bfloat16 by autocast; 8 sequences of 1024 tokens."""
    model = Decoder(vocabulary=50_257, length=1024, width=768, layers=12, heads=12)
    return _language_training(model, 8, device=device, is_mixed=True, fused=device == "cuda")


def resnet18(device: str) -> Training:
    """ResNet-18: 11.7 million parameters, bfloat16 by autocast; a batch of 64 images of 3 x 224 x 224."""
    model = ResNet18().to(device)
    inputs = torch.randn(64, 3, 224, 224, device=device)
    training = _training(model, inputs, classes=1000, is_mixed=True)
    training.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return training


MODELS: dict[str, Callable[[str], Training]] = {made.__name__: made for made in (mlp, cnn, transformer, gpt2, resnet18)}


def _training(model: nn.Module, inputs: torch.Tensor, *, classes: int, is_mixed: bool = False) -> Training:
    labels = torch.randint(0, classes, (len(inputs),), device=inputs.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    return Training(model, optimizer, inputs, labels, is_mixed)


def _language_training(
    model: "Decoder", batch: int, *, device: str, is_mixed: bool = False, **options: Any
) -> Training:
    model = model.to(device)
    tokens = torch.randint(0, model.vocabulary, (batch, model.length + 1), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **options)
    return Training(model, optimizer, tokens[:, :-1], tokens[:, 1:], is_mixed)


class Decoder(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """A decoder-only transformer like GPT-2: learned positions, pre-norm, tied embeddings."""

    def __init__(self, *, vocabulary: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.vocabulary, self.length = vocabulary, length
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(DecoderBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.blocks(self.tokens(tokens) + self.positions(places))
        return nn.functional.linear(self.norm(hidden), self.tokens.weight)


class DecoderBlock(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Causal attention and a two-layer MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        batch, length, width = hidden.shape
        parts = self.attend(self.first_norm(hidden)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        hidden = hidden + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.narrow(nn.functional.gelu(self.widen(self.second_norm(hidden))))


class ResNet18(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Eight residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        before = 64
        for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
            layers.append(ResidualBlock(before, width, stride))
            before = width
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(images)
        return outputs


class ResidualBlock(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Two convolutions with a skip connection."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.second = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
        self.past: nn.Module = nn.Identity()
        if stride != 1 or before != width:
            self.past = nn.Sequential(nn.Conv2d(before, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(self.first(images)) + self.past(images))
