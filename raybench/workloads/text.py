"""Classifiers of texts: a small encoder or DistilBERT, on AG News, IMDB or texts of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from raybench.errors import RequestError
from raybench.spec.workloads import TextSpec
from raybench.workloads import corpora, text_classifiers, tokenizers, tokens
from raybench.workloads.corpora import PUBLISHED_TEXTS
from raybench.workloads.text_classifiers import Encoder
from raybench.workloads.tokenizers import Tokenizer
from raybench.workloads.tokens import Batch, Padding, TokenizedTexts

CLASSES_OF_UNREAD_FILES = 2


class Text:
    """A classifier, cross entropy, and texts: read from ``data`` or the hub, or random tokens."""

    def __init__(self, spec: TextSpec, data: Path | None) -> None:
        self._spec, self._data = spec, data
        self._datasets: dict[str, TokenizedTexts] = {}
        self._loaded_tokenizer: Tokenizer | None = None

    @property
    def num_classes(self) -> int:
        """As the study says, else as in the data set. Raises ``RequestError`` for data that is not there."""
        spec = self._spec
        if spec.num_classes is not None:
            return spec.num_classes
        if spec.data_set in PUBLISHED_TEXTS:
            return PUBLISHED_TEXTS[spec.data_set].num_classes
        if spec.input == "synthetic":
            return CLASSES_OF_UNREAD_FILES
        return tokenizers.classes_of(self._token_folder("train"))

    @property
    def collate(self) -> Padding:
        """What pads the samples of a batch."""
        fixed = self._spec.padding == "fixed"
        return Padding(self._spec.sequence_length if fixed else None, self._tokenizer().pad_id)

    def model(self) -> nn.Module:
        """The classifier: random weights, or the checkpoint's with a new head where it has none.

        Raises ``RequestError`` for a checkpoint that is not there, damaged, or another model's.
        """
        spec = self._spec
        if spec.checkpoint is not None:
            config = text_classifiers.checkpoint_config(spec, spec.checkpoint, self._data)
            num_classes = self.num_classes
            num_tokens = self._tokenizer().size if spec.input == "real" else 0
            text_classifiers.check_fits(spec, config, num_classes, num_tokens)
            return text_classifiers.pretrained(spec, spec.checkpoint, self._data, num_classes)
        sizes = spec.sizes._replace(vocab_size=self._vocab_size())
        if spec.model == "encoder":
            return Encoder(sizes, spec.sequence_length, self.num_classes, spec.dropout)
        return text_classifiers.with_random_weights(spec, sizes, self.num_classes)

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
        if split not in self._datasets:
            folder = self._token_folder(split)
            needed, classes = tokenizers.classes_of(folder), self.num_classes
            if needed > classes:
                raise RequestError(
                    f"workload.num_classes: at least the {needed} of the data set (received {classes})"
                )
            limit = self._spec.samples if split == "train" else self._spec.test_samples
            self._datasets[split] = TokenizedTexts(folder, limit, split)
        return self._datasets[split]

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Mean cross entropy."""
        output = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        return nn.functional.cross_entropy(_logits(output), batch["labels"])

    def metric(self, output: Any, batch: Batch) -> torch.Tensor:
        """The number of correct predictions; ``output`` is what the model returned."""
        return (_logits(output).argmax(dim=1) == batch["labels"]).sum()

    def samples(self, batch: Batch) -> int:
        """The number of texts."""
        return len(batch["labels"])

    def tokens(self, batch: Batch) -> int:
        """The number of tokens, without padding."""
        return int(batch["attention_mask"].sum())

    def tokens_per_sample(self) -> float:
        """The mean over the training set, without padding."""
        if self._spec.input == "synthetic":
            return float(self._spec.sequence_length)
        return self.dataset("train").mean_tokens()

    def _token_folder(self, split: str) -> Path:
        spec, data = self._spec, self._data
        corpus = corpora.find(spec, data, split)
        return tokenizers.tokenize_texts(corpus, self._tokenizer(), spec.sequence_length)

    def _tokenizer(self) -> Tokenizer:
        if self._loaded_tokenizer is None:
            self._loaded_tokenizer = tokenizers.study_tokenizer(self._spec, self._data)
        return self._loaded_tokenizer

    def _vocab_size(self) -> int:
        spec, data = self._spec, self._data
        if spec.checkpoint is not None:
            return int(text_classifiers.checkpoint_config(spec, spec.checkpoint, data).vocab_size)
        return tokenizers.vocab_size(spec, data)


def _logits(output: Any) -> torch.Tensor:
    logits: torch.Tensor = getattr(output, "logits", output)
    return logits
