"""A decoder as GPT-2 with random weights, which learns the next token of texts or of random tokens."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from raybench.spec.workloads import CausalLMSpec
from raybench.workloads import corpora, tokenizers, tokens
from raybench.workloads.tokens import TokenBlocks


class CausalLM:
    """The decoder, and blocks of tokens. Its measure is the loss: perplexity is its exponential."""

    def __init__(self, spec: CausalLMSpec, data: Path | None) -> None:
        self._spec, self._data = spec, data

    def model(self) -> nn.Module:
        """The decoder with random weights."""
        from transformers import AutoModelForCausalLM, GPT2Config

        spec, sizes = self._spec, self._spec.sizes
        config = GPT2Config(
            vocab_size=tokenizers.vocab_size(self._spec, self._data),
            n_positions=spec.sequence_length,
            n_embd=sizes.hidden_dim,
            n_layer=sizes.num_layers,
            n_head=sizes.num_heads,
            n_inner=spec.feed_forward_dim,  # None: four times as wide as the model
            embd_pdrop=spec.dropout,
            attn_pdrop=spec.dropout,
            resid_pdrop=spec.dropout,
            use_cache=False,
            bos_token_id=None,  # GPT-2's own may lie outside of this vocabulary
            eos_token_id=None,
        )
        decoder: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        return decoder

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        """Random tokens of shape (size, sequence_length)."""
        vocab_size = tokenizers.vocab_size(self._spec, self._data)
        return tokens.random_ids(size, self._spec.sequence_length, vocab_size, generator)

    def dataset(self, split: str) -> TokenBlocks:
        """The blocks of "train" (limited to ``samples``) or "test" (to ``test_samples``).

        Raises ``RequestError`` for data that is missing or damaged.
        """
        tokenizer = tokenizers.study_tokenizer(self._spec, self._data)
        folder = tokenizers.tokenize_stream(corpora.find(self._spec, self._data, split), tokenizer)
        limit = self._spec.samples if split == "train" else self._spec.test_samples
        return TokenBlocks(folder, self._spec.sequence_length, limit, split)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy of every token but the first, each told from those before it."""
        logits = model(input_ids=batch).logits[:, :-1]
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    def tokens_per_sample(self) -> float:
        """The length of a block."""
        return float(self._spec.sequence_length)
