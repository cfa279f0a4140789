"""A script that shards its model itself."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = TensorDataset(torch.ones(4096, 16))
for (batch,) in DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False)):
    time.sleep(0.02)
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
