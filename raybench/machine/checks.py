"""What ``doctor`` looks at on one node: each check yields what it found, and the command that mends it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from scipy.stats import quantile_test

import raybench
from raybench.machine import environment, gpus, host
from raybench.machine import network as net
from raybench.machine.environment import few
from raybench.spec.plural import bytes_words

Status = Literal["ok", "warning", "missing"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    found: str  # what was seen, in a line
    mend: str | None = None  # a command, or what to do where no command does it


def judged(name: str, is_fine: bool, found: str, mend: str) -> Check:
    """``mend`` is of what is not fine."""
    return Check(name, "ok", found) if is_fine else Check(name, "warning", found, mend)


def software() -> Iterator[Check]:
    """Python, and the packages that measurements depend on."""
    packages = ", ".join(f"{name} {version}" for name, version in environment.versions().items())
    yield Check("Python", "ok", f"{platform.python_version()} ({sys.executable}): {packages}")


def devices() -> Iterator[Check]:
    """Cores and GPUs."""
    graphics, usable = gpus.graphics(), host.usable_cores()
    clock = host.clock_mhz()
    at = f" at {clock:.0f} MHz" if clock else ""
    yield Check("devices", "ok", f"{usable} usable of {os.cpu_count()} cores, {host.cpu_model()}{at}")
    unsupported = gpus.unsupported()
    if unsupported is not None:
        yield Check("devices", "missing", unsupported, "python -m raybench.study scaling --device cpu")
    elif not graphics.gpus:
        yield Check("devices", "ok", "no GPU visible: workers run on cores, with gloo")
    governor = host.governor()
    if governor and governor not in ("performance", "schedutil"):
        text = f"frequency governor {governor}: clocks follow the load"
        yield Check("devices", "warning", text, "sudo cpupower frequency-set -g performance")
    if not graphics.gpus:
        return
    for index, gpu in enumerate(graphics.gpus):
        limit = f", limit {gpu.power_limit_watts:.0f} W" if gpu.power_limit_watts else ""
        slot = f", PCIe {gpu.pcie_generation} x{gpu.pcie_width}" if gpu.pcie_generation else ""
        size = bytes_words(gpu.memory_bytes) if gpu.memory_bytes else "memory unknown"
        yield Check("devices", "ok", f"GPU {index}: {gpu.name}, {size}, {gpu.pci_bus_id}{limit}{slot}")
        if gpu.cores_near == 0:
            text = f"GPU {index} is far from all {usable} cores: what is copied to it crosses sockets"
            yield Check("devices", "warning", text, "numactl --cpunodebind=N, or srun --gpu-bind=closest")
        if gpu.is_exclusive:
            text = f"GPU {index} takes one process alone, a script and dp have several (compute mode)"
            yield Check("devices", "warning", text, f"sudo nvidia-smi -i {index} -c DEFAULT")
    yield Check("devices", "ok", f"driver {graphics.driver_version}, CUDA up to {graphics.cuda_version}")
    if host.installed_version("torch").endswith("+cpu"):
        command = "python -m pip install --force-reinstall torch torchvision"
        yield Check("devices", "missing", "this torch is built without CUDA", command)
    yield from _kernels(graphics.gpus)


def _kernels(visible: Sequence[gpus.Gpu]) -> Iterator[Check]:
    """Whether torch has kernels for each GPU."""
    known = [(index, gpu) for index, gpu in enumerate(visible) if gpu.compute_capability]
    architectures = torch_architectures() if known else []
    for index, gpu in known:
        if architectures and not _is_among(str(gpu.compute_capability), architectures):
            text = f"GPU {index} has compute capability {gpu.compute_capability}, this torch is compiled for "
            yield Check(
                "devices", "missing", text + ", ".join(architectures), "torch's wheels for an older CUDA"
            )


def torch_architectures() -> list[str]:
    """What the installed torch has kernels for, such as sm_90; a process of its own imports it."""
    command = [sys.executable, "-P", "-c", "import torch; print(*torch.cuda.get_arch_list())"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.split()


def _is_among(capability: str, architectures: Sequence[str]) -> bool:
    """By CUDA's rule: kernels (sm) run on their major version from their minor one on, PTX on later ones."""
    mine = tuple(map(int, capability.split(".")))
    for each in architectures:
        kind, _, digits = each.rstrip("af").partition("_")
        its = divmod(int(digits), 10)
        if its <= mine and (kind == "compute" or its[0] == mine[0]):
            return True
    return False


def topology() -> Iterator[Check]:
    """How the GPUs are connected, and whether each reads the memory of the others."""
    graphics = gpus.graphics()
    pairs = [*combinations(range(len(graphics.gpus)), 2)]
    if not pairs:
        return
    kinds: dict[str, list[str]] = {}
    for a, b in pairs:
        kinds.setdefault(graphics.gpu_links[a][b], []).append(f"{a}-{b}")
    connections = "; ".join(f"{kind}: {few(names)}" for kind, names in kinds.items())
    without = [f"{a}-{b}" for a, b in pairs if graphics.peer_to_peer[a][b] is False]
    lacks = f"; no peer-to-peer between {few(without)}: transfers go through main memory" if without else ""
    yield judged("peer-to-peer", not without, connections + lacks, "nvidia-smi topo -p2p r")


def network() -> Iterator[Check]:
    """The interfaces that gloo and NCCL will take."""
    for library, variable, interface in (
        ("gloo", "GLOO_SOCKET_IFNAME", net.gloo_interface()),
        ("NCCL", "NCCL_SOCKET_IFNAME", net.nccl_interface()),
    ):
        name = f"{library} interface"
        if library == "NCCL" and not gpus.graphics().gpus:
            continue
        there = ", ".join(net.interfaces())
        if interface is None:
            yield Check(
                name, "missing", "no network interface is up, not even the loopback", "ip link set lo up"
            )
        elif not interface[1]:
            text = f"{variable}={interface[0]}: no such interface, there are {there}"
            yield Check(name, "missing", text, f"unset {variable}")
        else:
            why = f"by {variable}" if os.environ.get(variable) else f"{variable} is not set"
            note = "; one node only" if interface[1].startswith("127.") or interface[1] == "::1" else ""
            yield Check(name, "ok", f"{interface[0]} ({interface[1]}), {why}{note}")


_MIN_SHARED_BYTES = 2**30


def shared_memory() -> Iterator[Check]:
    """Where Ray and DataLoader processes pass data."""
    path = Path("/dev/shm")
    usage = shutil.disk_usage(path)
    free, total = bytes_words(usage.free), bytes_words(usage.total)
    text = f"{free} free of {total} in {path}, for Ray and DataLoader processes"
    mend = "sudo mount -o remount,size=8G /dev/shm; of a container: docker run --shm-size=8g ..."
    yield judged("shared memory", usage.free >= _MIN_SHARED_BYTES, text, mend)


ALL_REDUCE_TIMEOUT_S = 70.0  # more than the two wait for each other
SELF_TEST = "raybench.worker.selftest"


def all_reduce() -> Iterator[Check]:
    """Two workers that talk to each other."""
    name = "all-reduce"
    variables = dict(os.environ)
    package_root = str(Path(raybench.__file__).parent.parent)
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    again = f"python -m {SELF_TEST}"
    # A session of its own: when its time is over both ranks end with it.
    process = subprocess.Popen(
        [sys.executable, "-m", SELF_TEST],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=ALL_REDUCE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        text = f"two workers did not finish in {ALL_REDUCE_TIMEOUT_S:.0f} s"
        yield Check(name, "missing", text, f"TORCH_DISTRIBUTED_DEBUG=DETAIL {again}")
        return
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        last = next((line for line in reversed(err.splitlines()) if line.strip()), "no message")
        text = f"two workers failed with code {process.returncode}: {last.strip()[:200]}"
        yield Check(name, "missing", text, again)
        return
    result = json.loads(out.splitlines()[-1])
    yield Check(name, "ok", all_reduce_words(result["backend"], result["bytes"], result["times_s"]))


def all_reduce_words(backend: str, num_bytes: int, times_s: list[float]) -> str:
    """Median and 95% interval of an all-reduce over two ranks, and its bus bandwidth.

    Bus bandwidth is bytes * 2 (n - 1) / n over time, with n = 2 the bytes over time (nccl-tests).
    """
    median = statistics.median(times_s)
    interval: Any = quantile_test(times_s, p=0.5).confidence_interval()
    return (
        f"2 workers, {backend}, {num_bytes / 2**20:.0f} MiB: median {1e3 * median:.2f} ms "
        f"[{1e3 * interval.low:.2f}, {1e3 * interval.high:.2f}], n = {len(times_s)}; "
        f"{num_bytes / median / 1e9:.2f} GB/s of bus bandwidth"
    )


def examine(with_workers: bool = True) -> list[Check]:
    """Every check of this node, in the order in which they are shown.

    With ``with_workers`` two workers start, for some 5 s.
    """
    looks: list[Callable[[], Iterator[Check]]] = [software, devices, topology, network, shared_memory]
    if with_workers:
        looks.append(all_reduce)
    found: list[Check] = []
    for look in looks:
        try:
            found += look()
        except Exception as error:  # one unreadable file must not hide the other answers
            name, why = look.__name__.replace("_", " "), f"{type(error).__name__}: {error}"
            found.append(Check(name, "warning", f"could not be examined: {why}"))
    return found
