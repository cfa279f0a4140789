"""Classifiers of texts: a small encoder, DistilBERT or BERT, on AG News, IMDB or texts of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from raybench.errors import RequestError
from raybench.spec.workloads import Sizes, TextSpec
from raybench.workloads.texts import corpora, hub, tokenizers, tokens
from raybench.workloads.texts.corpora import PUBLISHED
from raybench.workloads.texts.encoder import Encoder
from raybench.workloads.texts.tokenizers import Tokenizer
from raybench.workloads.texts.tokens import Batch, Padding, Samples

POSITIONS = 512  # of DistilBERT and BERT, unless a sample is longer
CLASSES_OF_UNREAD_FILES = 2
HEADS = ("classifier.", "pre_classifier.", "bert.pooler.")  # what a checkpoint without a classifier lacks


class Text:
    """A classifier, cross entropy, and texts: read from ``data`` or the hub, or random tokens."""

    def __init__(self, spec: TextSpec, data: Path | None) -> None:
        self._spec, self._data = spec, data
        self._opened: dict[str, Samples] = {}
        self._chosen: Tokenizer | None = None

    @property
    def num_classes(self) -> int:
        """As the study says, else as in the data set. Raises ``RequestError`` for data that is not there."""
        spec = self._spec
        if spec.num_classes is not None:
            return spec.num_classes
        if spec.data_set in PUBLISHED:
            return PUBLISHED[spec.data_set].num_classes
        return (
            tokens.classes_of(self._folder("train"))[0] if spec.input == "real" else CLASSES_OF_UNREAD_FILES
        )

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
            return self._pretrained(spec.checkpoint)
        sizes = spec.sizes._replace(vocab_size=self._vocab_size())
        if spec.model == "encoder":
            return Encoder(sizes, spec.sequence_length, self.num_classes, spec.dropout)
        from transformers import AutoModelForSequenceClassification

        config = _config(spec, sizes, self.num_classes)
        made: nn.Module = AutoModelForSequenceClassification.from_config(config, attn_implementation="sdpa")
        return made

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        """Random tokens of shape (size, sequence_length), none of them padding, and class numbers."""
        length = self._spec.sequence_length
        return {
            "input_ids": tokens.random_ids(size, length, self._vocab_size(), generator),
            "attention_mask": torch.ones(size, length, dtype=torch.int64),
            "labels": torch.randint(self.num_classes, (size,), generator=generator),
        }

    def dataset(self, split: str) -> Samples:
        """The texts of "train" (limited to ``samples``) or "test" (to ``test_samples``), as tokens.

        Raises ``RequestError`` for data that is missing or damaged, or does not fit the model.
        """
        if split not in self._opened:
            folder = self._folder(split)
            needed, classes = tokens.classes_of(folder)[0], self.num_classes
            if needed > classes:
                raise RequestError(
                    f"workload.num_classes: at least the {needed} of the data set (received {classes})"
                )
            field = "samples" if split == "train" else "test_samples"
            self._opened[split] = Samples(folder, getattr(self._spec, field), f"workload.{field}")
        return self._opened[split]

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

    def _folder(self, split: str) -> Path:
        spec, data = self._spec, self._data
        corpus = corpora.find(spec, data, split)
        if spec.data_set == "files" and split != "train":  # names of classes are numbered by the training set
            corpus = corpora.with_names(corpus, tokens.classes_of(self._folder("train"))[1])
        return tokens.tokenised(corpus, self._tokenizer(), spec.sequence_length)

    def _tokenizer(self) -> Tokenizer:
        if self._chosen is None:
            self._chosen = tokenizers.chosen(self._spec, self._data)
        return self._chosen

    def _vocab_size(self) -> int:
        if self._spec.checkpoint is not None:
            return int(self._checkpoint_config(self._spec.checkpoint).vocab_size)
        return tokenizers.vocab_size(self._spec, self._data)

    def _checkpoint_config(self, name: str) -> Any:
        from transformers import AutoConfig

        try:
            return hub.loaded(AutoConfig.from_pretrained, name, self._data)
        except Exception as error:
            raise self._no_checkpoint(name, error) from error

    def _pretrained(self, name: str) -> nn.Module:
        from transformers import AutoModelForSequenceClassification

        spec, config = self._spec, self._checkpoint_config(name)
        _fits(spec, config, self.num_classes, self._tokenizer().size if spec.input == "real" else 0)
        options = {
            "num_labels": self.num_classes,
            "dtype": torch.float32,
            "attn_implementation": "sdpa",
            "output_loading_info": True,
            "ignore_mismatched_sizes": True,  # told below, in one line
        }

        def load(place: str, local_files_only: bool) -> Any:
            return AutoModelForSequenceClassification.from_pretrained(
                place, local_files_only=local_files_only, **options
            )

        try:
            made, told = hub.loaded(load, name, self._data)
        except Exception as error:
            raise self._no_checkpoint(name, error) from error
        absent = [key for key in told["missing_keys"] if not key.startswith(HEADS)]
        wrong = sorted([*absent, *(key for key, *_ in told["mismatched_keys"])])
        if wrong:
            raise RequestError(
                f"workload.checkpoint: the weights that its config.json announces; {len(wrong)} missing or "
                f"of another shape, {wrong[0]} the first (received {name!r})"
            )
        model: nn.Module = made
        return model

    def _no_checkpoint(self, name: str, error: Exception) -> RequestError:
        what = hub.rule(f"a {self._spec.model} (config.json, model.safetensors)", name, self._data)
        return RequestError(f"workload.checkpoint: {what} (received {name!r}: {hub.first_line(error)})")


def _fits(spec: TextSpec, config: Any, num_classes: int, num_tokens: int) -> None:
    """Raise ``RequestError`` where the checkpoint is not what the study describes."""
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


def _config(spec: TextSpec, sizes: Sizes, num_classes: int) -> Any:
    """transformers' words for the sizes."""
    from transformers import BertConfig, DistilBertConfig

    shared = {
        "vocab_size": sizes.vocab_size,
        "max_position_embeddings": max(POSITIONS, spec.sequence_length),
        "num_labels": num_classes,
    }
    if spec.model == "bert":
        return BertConfig(
            hidden_size=sizes.hidden_dim,
            num_hidden_layers=sizes.num_layers,
            num_attention_heads=sizes.num_heads,
            intermediate_size=sizes.feed_forward_dim,
            hidden_dropout_prob=spec.dropout,
            attention_probs_dropout_prob=spec.dropout,
            **shared,
        )
    return DistilBertConfig(
        dim=sizes.hidden_dim,
        n_layers=sizes.num_layers,
        n_heads=sizes.num_heads,
        hidden_dim=sizes.feed_forward_dim,
        dropout=spec.dropout,
        attention_dropout=spec.dropout,
        seq_classif_dropout=spec.dropout,
        **shared,
    )


def _logits(output: Any) -> torch.Tensor:
    logits: torch.Tensor = getattr(output, "logits", output)
    return logits
