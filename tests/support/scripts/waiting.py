"""A plain DDP script of the model that a factory and an adapter have too."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from tests.support.own_trainings import Waiting, numbers

parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=8)
arguments = parser.parse_args()
dist.init_process_group("gloo")
model = DistributedDataParallel(Waiting())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, classes in DataLoader(numbers(4096), arguments.bs):
    nn.functional.cross_entropy(model(inputs), classes).backward()
    optimizer.step()
    optimizer.zero_grad()
