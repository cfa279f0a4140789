"""The container or hypervisor around this process."""

from __future__ import annotations

import os
from pathlib import Path

from raybench.machine import kernel_files


def virtualization() -> str | None:
    """A container or hypervisor that can be told without asking another program."""
    if Path("/run/.containerenv").exists():
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if Path("/.dockerenv").exists():
        return "docker"
    if "SINGULARITY_CONTAINER" in os.environ or "APPTAINER_CONTAINER" in os.environ:
        return "apptainer"
    if kernel_files.first_match(Path("/proc/cpuinfo"), r"^flags\s*:.*\b(hypervisor)\b"):
        return kernel_files.read(Path("/sys/class/dmi/id/sys_vendor")) or "virtual machine"
    return None
