"""A plain DDP script whose model is that of a factory and of a LightningModule."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from tests.support.own_trainings import Waiting, numbers

dist.init_process_group("gloo")
model = DistributedDataParallel(Waiting())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, classes in DataLoader(numbers(100_000), 8):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), classes).backward()
    optimizer.step()
