"""The MLP of a study as anyone would train it under torchrun, without raybench; prints its step time.

Run by ``torchrun_agreement.py``; rank 0 prints one line of JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    width_in, hidden, width_out, layers, batch, blocks, steps = map(int, sys.argv[1:8])
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    torch.manual_seed(0)
    widths = [width_in, *[hidden] * (layers - 1), width_out]
    modules: list[nn.Module] = []
    for one, other in itertools.pairwise(widths):
        modules += [nn.Linear(one, other), nn.ReLU()]
    model = nn.Sequential(*modules[:-1]).to(device)
    ddp = nn.parallel.DistributedDataParallel(model, device_ids=[device] if cuda else None)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
    inputs, targets = (
        torch.randn(batch, width_in, device=device),
        torch.randn(batch, width_out, device=device),
    )

    def step() -> None:
        nn.functional.mse_loss(ddp(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def wait() -> None:
        if cuda:
            torch.cuda.synchronize()

    for _ in range(20):
        step()
    wait()
    times = []
    for _ in range(blocks):
        dist.barrier()
        step()
        wait()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        times.append((time.perf_counter() - began) / steps)
    if dist.get_rank() == 0:
        print(json.dumps({"step_time_s": statistics.median(times), "blocks": times}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
