"""Classifiers of texts: a small encoder or DistilBERT, on AG News, IMDB or texts of one's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from raybench.errors import RequestError, first_line
from raybench.spec.workloads import Sizes, TextSpec
from raybench.workloads import corpora, hub, tokenizers, tokens
from raybench.workloads.corpora import PUBLISHED_TEXTS
from raybench.workloads.tokenizers import Tokenizer
from raybench.workloads.tokens import Batch, Padding, TokenizedTexts

T = TypeVar("T")
CLASSES_OF_UNREAD_FILES = 2
POSITIONS = 512  # of DistilBERT, unless a sample is longer
HEADS = ("classifier.", "pre_classifier.")  # what a checkpoint without a classifier lacks
EMBEDDING_STD = 0.02  # as BERT's (Devlin et al., 2019)


class Text:
    """A classifier, cross entropy, and texts: read from ``data`` or the hub, or random tokens."""

    def __init__(self, spec: TextSpec, data: Path | None) -> None:
        self._spec, self._data = spec, data

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return tokenizers.study_tokenizer(self._spec, self._data)

    @property
    def num_classes(self) -> int:
        """As the study says, else as in the data set. Raises ``RequestError`` for data that is not there."""
        spec = self._spec
        if spec.num_classes is not None:
            return spec.num_classes
        if spec.data_set in PUBLISHED_TEXTS:
            return PUBLISHED_TEXTS[spec.data_set].num_classes
        return CLASSES_OF_UNREAD_FILES if spec.input == "synthetic" else self._tokenized("train")[1]

    @property
    def collate(self) -> Padding:
        """What pads the samples of a batch."""
        fixed = self._spec.padding == "fixed"
        return Padding(self._spec.sequence_length if fixed else None, self._tokenizer.pad_id)

    def model(self) -> nn.Module:
        """The classifier: random weights, or the checkpoint's with a new head where it has none.

        Raises ``RequestError`` for a checkpoint that is not there, damaged, or another model's.
        """
        spec = self._spec
        if spec.checkpoint is not None:
            num_classes = self.num_classes
            num_tokens = self._tokenizer.size if spec.input == "real" else 0
            _check_fits(spec, self._checkpoint_config(), num_classes, num_tokens)
            return self._pretrained(num_classes)
        sizes = spec.sizes._replace(vocab_size=self._vocab_size())
        if spec.model == "encoder":
            return Encoder(sizes, spec.sequence_length, self.num_classes, spec.dropout)
        return _with_random_weights(spec, sizes, self.num_classes)

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        """Random tokens of shape (size, sequence_length), none of them padding, and class numbers."""
        length = self._spec.sequence_length
        return {
            "input_ids": tokens.random_ids(size, length, self._vocab_size(), generator),
            "attention_mask": torch.ones(size, length, dtype=torch.int64),
            "labels": torch.randint(self.num_classes, (size,), generator=generator),
        }

    def dataset(self, split: str) -> TokenizedTexts:
        """The texts of "train" (limited to ``samples``) or "test" (to ``test_samples``), as tokens.

        Raises ``RequestError`` for data that is missing or damaged, or does not fit the model.
        """
        (folder, needed), classes = self._tokenized(split), self.num_classes
        if needed > classes:
            raise RequestError(
                f"workload.num_classes: at least the {needed} of the data set (received {classes})"
            )
        limit = self._spec.samples if split == "train" else self._spec.test_samples
        return TokenizedTexts(folder, limit, split)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Mean cross entropy."""
        output = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        return nn.functional.cross_entropy(_logits(output), batch["labels"])

    def metric(self, output: Any, batch: Batch) -> torch.Tensor:
        """The number of correct predictions; ``output`` is what the model returned."""
        return (_logits(output).argmax(dim=1) == batch["labels"]).sum()

    def tokens_per_sample(self) -> float:
        """The mean over the training set, without padding."""
        if self._spec.input == "synthetic":
            return float(self._spec.sequence_length)
        return self.dataset("train").mean_tokens()

    def _tokenized(self, split: str) -> tuple[Path, int]:
        corpus = corpora.find(self._spec, self._data, split)
        return tokenizers.tokenize_texts(corpus, self._tokenizer, self._spec.sequence_length)

    def _vocab_size(self) -> int:
        if self._spec.checkpoint is not None:
            return int(self._checkpoint_config().vocab_size)
        return tokenizers.vocab_size(self._spec, self._data)

    def _checkpoint_config(self) -> Any:
        """What transformers knows of the checkpoint."""
        from transformers import AutoConfig

        return self._of_checkpoint(AutoConfig.from_pretrained)

    def _pretrained(self, num_classes: int) -> nn.Module:
        """The checkpoint's weights, with a new head where it has none."""
        from transformers import AutoModelForSequenceClassification

        load = partial(
            AutoModelForSequenceClassification.from_pretrained,
            num_labels=num_classes,
            dtype=torch.float32,
            attn_implementation="sdpa",
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, in one line
        )
        classifier, loading = self._of_checkpoint(load)
        absent = [key for key in loading["missing_keys"] if not key.startswith(HEADS)]
        wrong = sorted([*absent, *(key for key, *_ in loading["mismatched_keys"])])
        if wrong:
            raise RequestError(
                f"workload.checkpoint: the weights that its config.json announces; {len(wrong)} missing or "
                f"of another shape, {wrong[0]} the first (received {self._spec.checkpoint!r})"
            )
        model: nn.Module = classifier
        return model

    def _of_checkpoint(self, load: Callable[..., T]) -> T:
        """What ``load`` makes of the checkpoint; raises ``RequestError`` where that is missing or damaged."""
        spec, checkpoint = self._spec, str(self._spec.checkpoint)
        try:
            return hub.load_local_first(load, checkpoint, self._data)
        except Exception as error:
            files = f"a {spec.model} (config.json, model.safetensors)"
            what = hub.requirement(files, checkpoint, self._data)
            raise RequestError(
                f"workload.checkpoint: {what}, or random (received {checkpoint!r}: {first_line(error)})"
            ) from error


def _logits(output: Any) -> torch.Tensor:
    logits: torch.Tensor = getattr(output, "logits", output)
    return logits


def _with_random_weights(spec: TextSpec, sizes: Sizes, num_classes: int) -> nn.Module:
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


def _check_fits(spec: TextSpec, config: Any, num_classes: int, num_tokens: int) -> None:
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
