"""A script that fails as its first argument says."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

how = sys.argv[1]


def step(model, optimizer):
    model(torch.ones(8, 2)).sum().backward()
    optimizer.step()


if how == "never steps":
    sys.exit(0)
if how == "spawns":
    multiprocessing.spawn(print, nprocs=2)  # type: ignore[attr-defined]
model: torch.nn.Module = torch.nn.Linear(2, 2)
if how != "no group":
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number in range(10_000):
    step(model, optimizer)
    # of 5 to 7 nothing is sent (one step of warm-up, and three that do, come before): a rank that hangs there
    # is known by the other, which goes on
    if number < 6 or os.environ["RANK"] != "1":
        continue
    if how == "raises":
        raise ValueError("a bug of one rank")
    if how == "leaves":
        sys.exit(3)
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hangs":
        time.sleep(1000)
    if how == "ends early":
        break
