"""Models to split, apart from tests, whose assertions pytest makes into something else."""

import torch


class Block(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Looks at values, and so cannot be looked into."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if bool(x.sum() > 0) else -self.layer(x)


class Network(torch.nn.Module):  # type: ignore[misc]
    """A row of blocks, with code of its own that looks at shapes and passes the input by."""

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
