"""What every model of a record shares: frozen; what only older records have is read over."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raybench.errors import RequestError
from raybench.spec.base import M
from raybench.spec.user_input import received

# What a clock or a counter can say: a line with anything else is no measurement, whoever wrote it.
LONGEST_S, SHORTEST_S = 1e9, 1e-12
Seconds = Annotated[float, Field(ge=SHORTEST_S, le=LONGEST_S, allow_inf_nan=False)]
Duration = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]
Difference = Annotated[float, Field(ge=-LONGEST_S, le=LONGEST_S, allow_inf_nan=False)]
Finite = Annotated[float, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]  # a loss, a learning rate
Ratio = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0, le=2**31)]  # a rank, a number of steps that may be none
Bytes = Annotated[int, Field(ge=0, le=2**60)]
Samples = Annotated[int, Field(ge=0, le=2**53)]  # of a rank, of a class; may be none
Count = Annotated[int, Field(gt=0, le=2**53)]
Workers = Annotated[int, Field(gt=0, le=2**20)]  # or nodes: more than any cluster has


class Frozen(BaseModel):
    """A part of a record."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def checked(where: str, model: type[M], content: Any) -> M:
    """Return ``content`` as a ``model``; raises ``RequestError`` with ``where`` and its first fault."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise RequestError(f"{where}: {first_fault(error)}") from None


def first_fault(error: ValidationError) -> str:
    """The first fault that pydantic found: the field, the rule and the value received."""
    first = error.errors(include_url=False)[0]
    field, rule = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{field}: {rule} (received {received(first['input'])})" if field else rule
