"""One batch of the batches of all ranks."""

import torch

from raybench.worker.steps.parity import joined


def test_batches_join_whatever_holds_their_tensors():
    one, two = torch.zeros(2, 3), torch.ones(1, 3)
    assert joined([one, two]).shape == (3, 3)
    found = joined([{"a": (one, [one])}, {"a": (two, [two])}])
    assert torch.equal(found["a"][0], torch.cat([one, two]))
    assert torch.equal(found["a"][1][0], torch.cat([one, two]))
