"""What code may set for its whole process: read before a trial, and put back after it."""

from __future__ import annotations

import gc
import resource
import sys
from dataclasses import dataclass, fields

import torch

LIMITS = ("recursion_limit", "open_files_limit")


@dataclass(frozen=True)
class ProcessState:
    """How torch, the collector of garbage and two limits are set: what would change or end every later trial.

    Threads, tf32 and cuDNN's search are set anew for each trial, and are not among them.
    """

    grad_enabled: bool
    default_dtype: torch.dtype
    default_device: torch.device
    deterministic_algorithms: bool
    deterministic_warn_only: bool
    anomaly_detection: bool
    garbage_collection: bool
    cudnn_enabled: bool
    cudnn_deterministic: bool
    flash_attention: bool
    memory_efficient_attention: bool
    math_attention: bool
    recursion_limit: int
    open_files_limit: int

    @classmethod
    def now(cls) -> ProcessState:
        """As it is in this thread."""
        return cls(
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.is_anomaly_enabled(),
            gc.isenabled(),
            torch.backends.cudnn.enabled,
            torch.backends.cudnn.deterministic,
            torch.backends.cuda.flash_sdp_enabled(),  # type: ignore[no-untyped-call]
            torch.backends.cuda.mem_efficient_sdp_enabled(),  # type: ignore[no-untyped-call]
            torch.backends.cuda.math_sdp_enabled(),  # type: ignore[no-untyped-call]
            sys.getrecursionlimit(),
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )

    def put_back(self) -> tuple[str, ...]:
        """Set everything as it is here again; what had changed, in words.

        A limit that was raised stays: a module does that once, at its import, and needs it for all trials.
        """
        now = ProcessState.now()
        both = {field.name: (getattr(now, field.name), getattr(self, field.name)) for field in fields(self)}
        changed = {
            name: (found, before)
            for name, (found, before) in both.items()
            if (found < before if name in LIMITS else found != before)
        }
        if not changed:
            return ()
        torch.set_grad_enabled(self.grad_enabled)
        torch.set_default_dtype(self.default_dtype)
        if "default_device" in changed:  # a device that is set, even the same one, slows every call
            torch.set_default_device(None if self.default_device.type == "cpu" else self.default_device)
        torch.use_deterministic_algorithms(
            self.deterministic_algorithms, warn_only=self.deterministic_warn_only
        )
        torch.autograd.set_detect_anomaly(self.anomaly_detection)
        (gc.enable if self.garbage_collection else gc.disable)()
        torch.backends.cudnn.enabled = self.cudnn_enabled
        torch.backends.cudnn.deterministic = self.cudnn_deterministic
        torch.backends.cuda.enable_flash_sdp(self.flash_attention)
        torch.backends.cuda.enable_mem_efficient_sdp(self.memory_efficient_attention)
        torch.backends.cuda.enable_math_sdp(self.math_attention)
        if "recursion_limit" in changed:
            sys.setrecursionlimit(self.recursion_limit)
        if "open_files_limit" in changed:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # which only root raises again
            soft = (
                self.open_files_limit if hard == resource.RLIM_INFINITY else min(self.open_files_limit, hard)
            )
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return tuple(
            f"the workload left {name.replace('_', ' ')} at {found}: put back to {before} for later trials"
            for name, (found, before) in changed.items()
        )
