"""The MLP of a study as anyone would train it under torchrun, without raybench.

Started by ``torchrun_agreement.py``. Rank 0 waits for files ``go-0``, ``go-1``, ... in the folder of the last
argument; each time all ranks run some blocks of steps and rank 0 writes the median step time to ``done-N``.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    width_in, hidden, width_out, layers, batch, blocks, steps = map(int, sys.argv[1:8])
    folder = Path(sys.argv[8])
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

    def run(count: int) -> float:
        if cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            nn.functional.mse_loss(ddp(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if cuda:
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / count

    run(20)
    for number in itertools.count():
        if dist.get_rank() == 0:
            while not (folder / f"go-{number}").exists() and not (folder / "stop").exists():
                time.sleep(0.01)
        # rank 0 tells by the barrier when to go, and whether to stop
        stop = torch.tensor([float((folder / "stop").exists())], device=device)
        dist.broadcast(stop, 0)
        if stop.item():
            break
        times = []
        for _ in range(blocks):
            dist.barrier()
            run(2)
            times.append(run(steps))
        if dist.get_rank() == 0:
            partial = folder / f"partial-{number}"
            partial.write_text(str(statistics.median(times)))
            partial.rename(folder / f"done-{number}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
