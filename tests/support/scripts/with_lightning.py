"""A training with Lightning, whose Trainer starts no ranks where torchrun's variables are there."""

import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch, number):
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    data = TensorDataset(torch.randn(20_000, 64), torch.randint(10, (20_000,)))
    devices = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = lightning.Trainer(max_epochs=100, accelerator="cpu", devices=devices, strategy="ddp")
    trainer.fit(Module(), DataLoader(data, 16))
