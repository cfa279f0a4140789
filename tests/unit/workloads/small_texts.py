"""Small models of texts, and the texts that the fixture ``data`` has."""

import torch

from raybench.spec.workloads import CausalLMSpec, TextSpec
from raybench.workloads import build

SMALL = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2, "feed_forward_dim": 16, "vocab_size": 150}
WORDS = ["stocks fall again", "team wins the final match", "new chip", "talks on peace fail in the end"]


def text(data=None, **fields):
    return build(TextSpec(name="text", **fields), data and str(data))


def causal_lm(data=None, **fields):
    return build(CausalLMSpec(name="causal_lm", **fields), data and str(data))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)
