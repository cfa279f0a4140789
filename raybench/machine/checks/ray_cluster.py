"""Ray: the cluster that it will take, and its token."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

from raybench.machine.checks.check import Check


def ray() -> Iterator[Check]:
    """Which cluster, and whether its token is there; never what it says."""
    address = os.environ.get("RAY_ADDRESS")
    # An address may carry a password; what stands before the host is left out.
    shown = re.sub(r"//[^/@\s]*@", "//...@", address).split("?")[0] if address else None
    yield Check("Ray", "ok", f"RAY_ADDRESS {shown}" if shown else "RAY_ADDRESS is not set: a local cluster")
    if importlib.util.find_spec("ray") and not importlib.util.find_spec("aiohttp_cors"):
        command = 'python -m pip install "ray[default]"'
        yield Check("Ray", "warning", "without ray[default] there is no dashboard", command)
    mode = os.environ.get("RAY_AUTH_MODE")
    if mode == "disabled":
        yield Check("Ray", "ok", "RAY_AUTH_MODE=disabled: the dashboard's API needs no token")
        return
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    word = f"RAY_AUTH_MODE={mode}" if mode else "RAY_AUTH_MODE is not set"
    if "RAY_AUTH_TOKEN" in os.environ:
        yield Check("Ray", "ok", f"{word}, the token comes from RAY_AUTH_TOKEN")
    elif path.is_file():
        yield Check("Ray", "ok", f"{word}, the token is in {path}")
    elif mode == "token" or address:
        yield Check("Ray", "warning", f"{word}, no token in {path}", "ray get-auth-token --generate")
    else:
        yield Check("Ray", "ok", f"{word}; a local cluster makes its token in {path}")
