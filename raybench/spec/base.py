"""What every model of a study shares: frozen, no unknown keys, lists that take a single value."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Model(BaseModel):
    """A frozen part of a study; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def no_repeats(values: tuple[T, ...]) -> tuple[T, ...]:
    """The list, unless a value stands in it twice; 1 and 1.0 are two."""
    seen = set[tuple[type, Any]]()
    for value in values:
        if (type(value), value) in seen:
            raise ValueError(f"each value once, {value!r} stands there twice")
        seen.add((type(value), value))
    return values


def timeout_is_longer(measure: T) -> T:
    """Refuse rounds that a time-out would end."""
    rounds_s, timeout_s = measure.max_seconds, measure.timeout_seconds  # type: ignore[attr-defined]
    if timeout_s <= rounds_s:
        raise ValueError(f"timeout_seconds must exceed max_seconds ({timeout_s} <= {rounds_s})")
    return measure


PositiveInt = Annotated[int, Field(gt=0, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, strict=True)]
NonNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
# Strict: "20" is no number and "yes" no boolean; an integer is a float still.
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
LONGEST_S = 1e8  # three years: clocks and locks of the system do not take any number of seconds
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False, strict=True)]
Fraction = Annotated[float, Field(gt=0, lt=1, strict=True)]
Switch = Annotated[bool, Field(strict=True)]
Ascending = AfterValidator(lambda values: tuple(sorted(values)))
# a value stands for a list of one
ListOrValue = BeforeValidator(lambda value: list(value) if isinstance(value, list | tuple) else [value])
Listed = Annotated[tuple[T, ...], ListOrValue, AfterValidator(no_repeats)]
