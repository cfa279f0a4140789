"""Classifiers of texts: DistilBERT of transformers, and a small transformer encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from raybench.errors import RequestError
from raybench.spec.workloads import Sizes, TextSpec
from raybench.workloads import hub
from raybench.workloads.data_files import first_line

POSITIONS = 512  # of DistilBERT, unless a sample is longer
HEADS = ("classifier.", "pre_classifier.")  # what a checkpoint without a classifier lacks


def with_random_weights(spec: TextSpec, sizes: Sizes, num_classes: int) -> nn.Module:
    """A classifier of these sizes."""
    from transformers import AutoModelForSequenceClassification, DistilBertConfig

    config = DistilBertConfig(
        vocab_size=sizes.vocab_size,
        max_position_embeddings=max(POSITIONS, spec.sequence_length),
        num_labels=num_classes,
        dim=sizes.hidden_dim,
        n_layers=sizes.num_layers,
        n_heads=sizes.num_heads,
        hidden_dim=sizes.feed_forward_dim,
        dropout=spec.dropout,
        attention_dropout=spec.dropout,
        seq_classif_dropout=spec.dropout,
    )
    classifier: nn.Module = AutoModelForSequenceClassification.from_config(config, attn_implementation="sdpa")
    return classifier


def pretrained(spec: TextSpec, checkpoint: str, data: Path | None, num_classes: int) -> nn.Module:
    """The checkpoint's weights, with a new head where it has none.

    Raises ``RequestError`` for a checkpoint that is not there, or damaged.
    """
    from transformers import AutoModelForSequenceClassification

    options = {
        "num_labels": num_classes,
        "dtype": torch.float32,
        "attn_implementation": "sdpa",
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # reported below, in one line
    }

    def load(place: str, local_files_only: bool) -> Any:
        return AutoModelForSequenceClassification.from_pretrained(
            place, local_files_only=local_files_only, **options
        )

    try:
        classifier, loading = hub.load_local_first(load, checkpoint, data)
    except Exception as error:
        raise _no_checkpoint(spec, checkpoint, data, error) from error
    absent = [key for key in loading["missing_keys"] if not key.startswith(HEADS)]
    wrong = sorted([*absent, *(key for key, *_ in loading["mismatched_keys"])])
    if wrong:
        raise RequestError(
            f"workload.checkpoint: the weights that its config.json announces; {len(wrong)} missing or "
            f"of another shape, {wrong[0]} the first (received {checkpoint!r})"
        )
    model: nn.Module = classifier
    return model


def checkpoint_config(spec: TextSpec, checkpoint: str, data: Path | None) -> Any:
    """What transformers knows of the checkpoint; raises ``RequestError`` where it is not there."""
    from transformers import AutoConfig

    try:
        return hub.load_local_first(AutoConfig.from_pretrained, checkpoint, data)
    except Exception as error:
        raise _no_checkpoint(spec, checkpoint, data, error) from error


def _no_checkpoint(spec: TextSpec, checkpoint: str, data: Path | None, error: Exception) -> RequestError:
    what = hub.requirement(f"a {spec.model} (config.json, model.safetensors)", checkpoint, data)
    return RequestError(
        f"workload.checkpoint: {what}, or random (received {checkpoint!r}: {first_line(error)})"
    )


def check_fits(spec: TextSpec, config: Any, num_classes: int, num_tokens: int) -> None:
    """Raise ``RequestError`` where the checkpoint is not what the study describes.

    ``num_tokens`` are the entries of the tokenizer, which the embedding has to hold; 0: none is used.
    """
    if config.model_type != spec.model:
        raise RequestError(
            f"workload.checkpoint: a {spec.model}, as workload.model says "
            f"(received {spec.checkpoint!r}, a {config.model_type})"
        )
    is_classifier = any("ForSequenceClassification" in name for name in config.architectures or ())
    if is_classifier and config.num_labels != num_classes:
        raise RequestError(
            f"workload.checkpoint: a classifier of {num_classes} classes, as the data set has "
            f"(received {spec.checkpoint!r}, of {config.num_labels})"
        )
    if spec.sequence_length > config.max_position_embeddings:
        raise RequestError(
            f"workload.sequence_length: at most the checkpoint's {config.max_position_embeddings} positions "
            f"(received {spec.sequence_length})"
        )
    if num_tokens > config.vocab_size:
        raise RequestError(
            f"workload.tokenizer: at most the {config.vocab_size} entries of the checkpoint "
            f"(received {num_tokens})"
        )


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
