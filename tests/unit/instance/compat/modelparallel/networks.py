"""Models to split, in a module of their own because pytest rewrites the assertions of test modules."""

import torch


class Block(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Depends on values, so it cannot be traced."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if bool(x.sum() > 0) else -self.layer(x)


class Network(torch.nn.Module):  # type: ignore[misc]
    """A sequence of blocks, with code that depends on shapes and bypasses blocks with the input."""

    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(4) for _ in range(count))
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, *, shift: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        count, width = x.size()
        assert width == 4, "of four features"
        found = x.view(count, -1) + torch.arange(width, device=x.device)
        for block in self.blocks:
            found = block(found) + x
        if shift is not None:
            found = found + shift
        return {"logits": self.head(found), "first": x[0]}
