"""A plain DDP script whose steps take what its arguments say."""

import argparse
import itertools
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import BuiltinCommHookType
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=8)
parser.add_argument("--base-ms", type=float, default=20.0)
parser.add_argument("--slow-ms", type=float, default=0.0)  # more, on rank 1
parser.add_argument("--send-ms", type=float, default=0.0)  # of each all-reduce
parser.add_argument("--data-ms", type=float, default=0.0)
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--epoch", type=int, default=0)  # samples, and epochs without an end
parser.add_argument("--no-loader", action="store_true")
parser.add_argument("--compiled-step", action="store_true")
parser.add_argument("--bare", action="store_true")
parser.add_argument("--by-hand", action="store_true")  # in the place of DDP
parser.add_argument("--built-in", action="store_true")  # hook
parser.add_argument("--unused", action="store_true")
parser.add_argument("--gathers-every", type=int, default=0)  # steps, as to log or to evaluate
parser.add_argument("--gather-ms", type=float, default=0.0)
parser.add_argument("--new-optimizer-at", type=int, default=-1)  # step, as of the next fold
arguments = parser.parse_args()


class Samples(Dataset):
    def __len__(self):
        return arguments.epoch or arguments.steps * arguments.bs * arguments.accumulation

    def __getitem__(self, index):
        if index % arguments.bs == 0:
            time.sleep(arguments.data_ms / 1e3)
        return torch.ones(4)


class Sleeping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))  # whose buffers DDP sends

    def forward(self, inputs):
        slow_ms = arguments.slow_ms if dist.get_rank() == 1 else 0.0
        time.sleep((arguments.base_ms + slow_ms) / 1e3)
        return self.layer(inputs)


def batches():
    if arguments.no_loader:
        yield from itertools.repeat(torch.ones(arguments.bs, 4), arguments.steps)
    while True:
        yield from DataLoader(Samples(), arguments.bs)
        if not arguments.epoch:
            return
        for _ in DataLoader(Samples(), arguments.bs):  # an evaluation, drawn as in training
            pass


def sending(group, bucket):
    time.sleep(arguments.send_ms / 1e3)
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


dist.init_process_group("gloo")
is_bare = arguments.bare or arguments.by_hand
model = (
    Sleeping()
    if is_bare
    else DistributedDataParallel(Sleeping(), bucket_cap_mb=10, find_unused_parameters=arguments.unused)
)
if arguments.send_ms and not is_bare and dist.get_world_size() > 1:
    model.register_comm_hook(None, sending)
if arguments.built_in:
    model._register_builtin_comm_hook(BuiltinCommHookType.FP16_COMPRESS)  # type: ignore[operator]
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = torch.compile(lambda: optimizer.step(), backend="eager") if arguments.compiled_step else None
for number, batch in enumerate(batches()):
    model(batch).sum().backward()
    if arguments.by_hand:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # type: ignore[arg-type]
    if (number + 1) % arguments.accumulation == 0:
        (step or optimizer.step)()
        optimizer.zero_grad()
    if number == arguments.new_optimizer_at:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if arguments.gathers_every and number % arguments.gathers_every == 0:
        time.sleep(arguments.gather_ms / 1e3)
        dist.all_reduce(torch.zeros(1))
Path("last.pt").write_text("weights")
print("trained to the end")
dist.destroy_process_group()
