"""Paths as the terminal shows them."""

from __future__ import annotations

import os
from pathlib import Path


def shown_path(path: Path) -> str:
    """A path as short as it is from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
