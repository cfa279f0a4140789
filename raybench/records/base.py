"""What every model of a record shares: frozen, no unknown keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A part of a record; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
