import argparse
import json
import os

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.layer(inputs), targets)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        inputs, targets = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(inputs), targets), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.2)


parser = argparse.ArgumentParser()
parser.add_argument("--max_epochs", type=int, default=1)
args = parser.parse_args()

L.seed_everything(0)
inputs = torch.randn(512, 2)
data = TensorDataset(inputs, inputs @ torch.tensor([[2.0], [-1.0]]) + 3)
hosts = json.loads(os.environ["SM_HOSTS"])
trainer = L.Trainer(
    max_epochs=args.max_epochs,
    accelerator="cpu",
    devices=1,
    num_nodes=len(hosts),
    strategy="ddp",
    default_root_dir=os.environ["SM_OUTPUT_DATA_DIR"],
    enable_progress_bar=False,
    logger=False,
)
model = Line()
trainer.fit(model, DataLoader(data, batch_size=32, shuffle=True), DataLoader(data, batch_size=128))
assert trainer.world_size == len(hosts)
print(f"val_loss={trainer.callback_metrics['val_loss'].item():.4f}")
trainer.save_checkpoint(os.path.join(os.environ["SM_MODEL_DIR"], "model.ckpt"))
