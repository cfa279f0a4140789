"""A small transformer encoder that classifies texts."""

from __future__ import annotations

import torch
from torch import nn

from raybench.spec.workloads import Sizes

EMBEDDING_STD = 0.02  # as BERT's (Devlin et al., 2019)


class Encoder(nn.Module):
    """Embeddings of tokens and positions, torch's TransformerEncoder, masked mean, linear head.

    Layers normalise before attention and feed-forward (Xiong et al., 2020): that learns without a warm-up.
    """

    def __init__(self, sizes: Sizes, sequence_length: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        width = sizes.hidden_dim
        self.tokens = nn.Embedding(sizes.vocab_size, width)
        self.positions = nn.Embedding(sequence_length, width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=EMBEDDING_STD)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            width,
            sizes.num_heads,
            sizes.feed_forward_dim,
            dropout,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(
            layer, sizes.num_layers, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        for parameter in self.layers.parameters():  # the layers are copies of one: each gets its own weights
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        self.head = nn.Linear(width, num_classes)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Logits of shape (size, classes) for token numbers and mask (1: a token) of shape (size, tokens)."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.dropout(self.tokens(input_ids) + self.positions(places))
        hidden = self.layers(hidden, src_key_padding_mask=attention_mask == 0)
        weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
        logits: torch.Tensor = self.head(self.dropout(mean))
        return logits
