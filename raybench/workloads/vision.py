"""torchvision's classifiers on CIFAR-10 or Fashion-MNIST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import nn
from torch.utils.data import Dataset

from raybench.errors import RequestError
from raybench.spec.user_input import did_you_mean
from raybench.spec.workloads import VisionSpec
from raybench.workloads.data_files import first_line
from raybench.workloads.image_data_sets import (
    NUM_CHANNELS,
    ArrayImages,
    Preparation,
    Sample,
)
from raybench.workloads.published_images import PUBLISHED_IMAGES

Batch = tuple[torch.Tensor, torch.Tensor]


SMALL_IMAGES = 64  # pixels a side, from which on a ResNet keeps its own stem


class Vision:
    """A classifier, cross entropy, and images: read from ``data``, or random ones of the same shape."""

    def __init__(self, spec: VisionSpec, data: Path | None) -> None:
        """Raise ``RequestError`` for a name that is no classifier."""
        self._spec, self._data = spec, data
        self._published = PUBLISHED_IMAGES[spec.data_set]
        self._size = spec.image_size or self._published.image_size
        _check_name(spec.model)

    def check(self) -> None:
        """Raise ``RequestError`` where the classifier does not take images of this size.

        It is run without storage: what its layers make of them is known then.
        """
        try:
            with torch.device("meta"):
                self.model()(torch.empty(2, NUM_CHANNELS, self._size, self._size))
        except (RuntimeError, ValueError, AssertionError) as error:
            raise RequestError(
                f"workload.image_size: pixels that {self._spec.model} takes "
                f"(received {self._size}: {first_line(error)})"
            ) from error

    @property
    def num_classes(self) -> int:
        """As the study says, else as in the data set."""
        return self._spec.num_classes or self._published.num_classes

    def model(self) -> nn.Module:
        """The classifier with random weights, without auxiliary outputs."""
        name = self._spec.model
        classifier: nn.Module = torchvision.models.get_model(
            name, weights=None, num_classes=self.num_classes, **_builder_arguments(name, self._size)
        )
        requested = self._spec.small_image_stem
        small_stem = self._size < SMALL_IMAGES if requested is None else requested
        if small_stem and isinstance(classifier, torchvision.models.ResNet):
            _small_image_stem(classifier)
        return classifier

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        """Random images of shape (size, 3, pixels, pixels) and class numbers of shape (size,)."""
        images = torch.randn(size, NUM_CHANNELS, self._size, self._size, generator=generator)
        return images, torch.randint(self.num_classes, (size,), generator=generator)

    def dataset(self, split: str) -> Dataset[Sample]:
        """The images of "train" (augmented, if the study says so; limited to ``samples``) or "test"
        (limited to ``test_samples``).

        Raises ``RequestError`` for data that is missing or damaged, or has more classes than the model.
        """
        spec, train = self._spec, split == "train"
        samples = spec.samples if train else spec.test_samples
        images, augment = self._published, spec.augment and train
        if self.num_classes < images.num_classes:
            raise RequestError(
                f"workload.num_classes: at least the {images.num_classes} of the data set "
                f"(received {self.num_classes})"
            )
        folder = images.array_folder(self._data)
        prepare = Preparation(images.mean, images.std, images.padding * augment, augment, self._size)
        return ArrayImages(folder, split, prepare, samples)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Mean cross entropy."""
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels)

    def metric(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The number of correct predictions; ``output`` is the model's, of shape (size, classes)."""
        return (output.argmax(dim=1) == batch[1]).sum()


def _check_name(name: str) -> None:
    names = torchvision.models.list_models(module=torchvision.models)
    if name not in names:
        raise RequestError(
            "workload.model: a classifier of torchvision.models "
            f"(received {name!r}){did_you_mean(name, names)}"
        )


def _builder_arguments(name: str, size: int) -> dict[str, Any]:
    """What a builder needs in addition to the number of classes."""
    if name in ("googlenet", "inception_v3"):  # in training they return three outputs, unless told so
        return {"aux_logits": False, "init_weights": True}
    if name.startswith("vit_"):
        return {"image_size": size}
    return {"input_size": (size, size)} if name.startswith("maxvit") else {}


def _small_image_stem(model: Any) -> None:
    """The stem of the ResNets for CIFAR (He et al., 2016, section 4.2): 3x3, stride 1, no pooling."""
    stem = nn.Conv2d(NUM_CHANNELS, model.conv1.out_channels, 3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    model.conv1, model.maxpool = stem, nn.Identity()
