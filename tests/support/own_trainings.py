"""Trainings as people have them: a transformers.Trainer, a LightningModule, and the same as a factory."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch
import torch.distributed as dist
from lightning import pytorch as pl
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

WORDS, LENGTH, CLASSES = 50, 8, 3


class Texts(Dataset[dict[str, torch.Tensor]]):
    """Rows of words with a class, and a column that no model takes."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(count)
        self.words = torch.randint(1, WORDS, (count, LENGTH), generator=generator)
        self.classes = torch.randint(CLASSES, (count,), generator=generator)
        self.words[:, :4] = 1 + self.classes[:, None]

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, Any]:
        words = self.words[index]
        return {
            "input_ids": words,
            "attention_mask": torch.ones_like(words),
            "label": self.classes[index],
            "row": index,
        }


def accuracy(predicted: Any) -> dict[str, float]:
    return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}


def text_model() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=LENGTH, num_labels=CLASSES, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def arguments(**more: Any) -> Any:
    from transformers import TrainingArguments

    given: dict[str, Any] = {
        "output_dir": str(Path(gettempdir()) / "raybench-trainer"),
        "per_device_train_batch_size": 16,
        "learning_rate": 5e-3,
        "weight_decay": 0.1,
        "report_to": "none",
        "lr_scheduler_type": "linear",
        "warmup_steps": 2,
        "disable_tqdm": True,
    }
    return TrainingArguments(**given | more)


def build_trainer(samples: int = 128, **more: Any) -> Any:
    from transformers import Trainer

    return Trainer(
        model=text_model(),
        args=arguments(**more),
        train_dataset=Texts(samples),
        eval_dataset=Texts(samples // 2),
        compute_metrics=accuracy,
    )


class Classifier(pl.LightningModule):
    """As in a tutorial: it logs, it has a scheduler, and its optimizer spares the biases."""

    def __init__(self, width: int = 16, interval: str = "step") -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LENGTH, width), nn.ReLU(), nn.Linear(width, CLASSES))
        self.interval = interval

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.net(inputs)
        return found

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        inputs, classes = batch
        loss = nn.functional.cross_entropy(self(inputs), classes)
        self.log("train_loss", loss, prog_bar=True, sync_dist=True)
        self.log_dict({"batch": float(batch_idx)})
        return loss

    def configure_optimizers(self) -> Any:
        named = dict(self.named_parameters())
        groups = [
            {
                "params": [each for name, each in named.items() if not name.endswith("bias")],
                "weight_decay": 0.1,
            },
            {"params": [each for name, each in named.items() if name.endswith("bias")], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, 5e-3)
        scheduler = torch.optim.lr_scheduler.LinearLR(
            optimizer, 0.1, 1.0, total_iters=int(self.trainer.estimated_stepping_batches)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


def numbers(count: int) -> TensorDataset:
    texts = Texts(count)
    return TensorDataset(texts.words.float() / WORDS, texts.classes)


class Numbers(pl.LightningDataModule):
    """Made by hand in ``setup``, as data modules are."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.samples, self.prepared = samples, 0

    def prepare_data(self) -> None:
        self.prepared += 1

    def setup(self, stage: str) -> None:
        self.train, self.validation = numbers(self.samples), numbers(self.samples // 2)

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train, batch_size=16, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.validation, batch_size=32)


def build_lightning(samples: int = 128, interval: str = "step") -> Any:
    return Classifier(interval=interval), Numbers(samples)


class AsFactory:
    """The Trainer's model, data and loss by hand."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def model(self) -> nn.Module:
        return text_model()

    def dataset(self, split: str) -> Texts:
        return Texts(self.samples if split == "train" else self.samples // 2)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        names = {"input_ids": "input_ids", "attention_mask": "attention_mask", "labels": "label"}
        loss: torch.Tensor = model(**{name: batch[key] for name, key in names.items()}).loss
        return loss


def build_factory(samples: int = 128) -> AsFactory:
    return AsFactory(samples)


class Waiting(nn.Module):
    """Waits 100 ms in each pass on one device alone, and 150 ms among several: 67% efficiency."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(LENGTH, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(0.15 if dist.is_initialized() and dist.get_world_size() > 1 else 0.1)
        found: torch.Tensor = self.layer(inputs)
        return found


class WaitingModule(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = Waiting()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        inputs, classes = batch
        return nn.functional.cross_entropy(self.net(inputs), classes)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)


class WaitingWorkload:
    def model(self) -> nn.Module:
        return Waiting()

    def batch(self, size: int, generator: torch.Generator) -> Any:
        return next(iter(DataLoader(numbers(size), size)))

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])


def build_waiting_lightning() -> Any:
    return WaitingModule(), DataLoader(numbers(4096), 8)
