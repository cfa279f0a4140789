"""Two processes that all-reduce 16 MiB: what ``doctor`` runs to see whether workers can talk at all.

``python -m raybench.worker.selftest`` prints one line of JSON: backend, bytes and the times in s, each the
slower rank's. It needs neither Ray nor a study, and ends on its own when a rank does not come.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

NUM_BYTES = 16 * 2**20
NUM_TIMES = 20
NUM_THROWN_AWAY = 3
TIMEOUT_S = 60.0  # one node may still import torch from a network's disk, and NCCL connects first
_WORLD_SIZE = 2


def main() -> None:
    """Start both ranks; rank 0 prints the line. Raises what one of them raises, and ends the other."""
    from torch.multiprocessing.spawn import spawn

    from raybench.machine.gpus import gpu_names

    backend = "nccl" if len(gpu_names()) >= _WORLD_SIZE else "gloo"
    if backend == "gloo" and Path("/sys/class/net/lo").exists():
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # both ranks are here: only this host is tested
    with tempfile.TemporaryDirectory(prefix="raybench-selftest-") as folder:
        meeting_point = f"file://{Path(folder, 'store')}"
        spawn(_be_rank, (meeting_point, backend), nprocs=_WORLD_SIZE)  # type: ignore[no-untyped-call]


def _be_rank(rank: int, meeting_point: str, backend: str) -> None:
    times = measure(rank, meeting_point, backend, gpu=rank)
    if rank == 0:
        print(json.dumps({"backend": backend, "bytes": NUM_BYTES, "times_s": times}), flush=True)


def measure(rank: int, meeting_point: str, backend: str, *, gpu: int = 0) -> list[float]:
    """Times of the all-reduces in s; each is the slower rank's, the same list on both."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    device = torch.device("cuda", gpu) if backend == "nccl" else torch.device("cpu")
    wait: Callable[[], object] = torch.cuda.synchronize if backend == "nccl" else lambda: None
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(
        backend,
        init_method=meeting_point,
        rank=rank,
        world_size=_WORLD_SIZE,
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    values = torch.zeros(NUM_BYTES // 4, device=device)
    times = []
    for _ in range(NUM_THROWN_AWAY + NUM_TIMES):
        values.fill_(rank + 1.0)
        wait()
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(values)
        wait()
        times.append(time.perf_counter() - began)
    total = float(_WORLD_SIZE * (_WORLD_SIZE + 1) / 2)
    if not bool((values == total).all()):
        raise RuntimeError(f"the all-reduce gave wrong sums: {values[:4].tolist()}, not {total}")
    slowest = torch.tensor(times[NUM_THROWN_AWAY:], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    dist.destroy_process_group()
    found: list[float] = slowest.tolist()
    return found


if __name__ == "__main__":
    main()
