"""The one line with which a workload refuses."""

import pytest

from raybench.errors import RequestError


def refusal(call):
    """What ``call`` is refused with: one problem, on one line."""
    with pytest.raises(RequestError) as caught:
        call()
    assert len(caught.value.problems) == 1
    assert "\n" not in str(caught.value)
    return str(caught.value)
