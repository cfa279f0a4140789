"""torchvision's classifiers on CIFAR-10, Fashion-MNIST, or folders of images."""

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
    FolderImages,
    Preparation,
    Sample,
    class_folders,
)
from raybench.workloads.published_images import PUBLISHED_IMAGES

Batch = tuple[torch.Tensor, torch.Tensor]


FOLDER_IMAGE_SIZE, FOLDER_CLASSES = 224, 1000  # ImageNet's, for synthetic images of a folder's shape
SMALL_IMAGES = 64  # pixels a side, from which on a ResNet keeps its own stem


class Vision:
    """A classifier, cross entropy, and images: read from ``data``, or random ones of the same shape."""

    def __init__(self, spec: VisionSpec, data: Path | None) -> None:
        """Raise ``RequestError`` for a name that is no classifier."""
        self._spec, self._data = spec, data
        self._published = PUBLISHED_IMAGES.get(spec.data_set)
        size_of_data_set = self._published.image_size if self._published else FOLDER_IMAGE_SIZE
        self._size = spec.image_size or size_of_data_set
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
        """As the study says, else as in the data set. Raises ``RequestError`` for folders not there."""
        if self._spec.num_classes is not None:
            return self._spec.num_classes
        if self._published:
            return self._published.num_classes
        return len(self._folder_classes()) if self._spec.input == "real" else FOLDER_CLASSES

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
        if self._published is None:
            self._check_classes(len(self._folder_classes()))
            return FolderImages(self._folder(), split, self._size, spec.augment, samples)
        images, augment = self._published, spec.augment and train
        self._check_classes(images.num_classes)
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

    def _folder(self) -> Path:
        if self._data is None:
            raise RequestError(
                "data: a directory with train/CLASS/*.png and test/CLASS/*.png "
                "(received nothing: --data DIR says where)"
            )
        return self._data

    def _folder_classes(self) -> tuple[str, ...]:
        return class_folders(self._folder() / "train")[0]

    def _check_classes(self, needed: int) -> None:
        if self.num_classes < needed:
            raise RequestError(
                f"workload.num_classes: at least the {needed} of the data set (received {self.num_classes})"
            )


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
