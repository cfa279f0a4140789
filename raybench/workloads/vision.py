"""torchvision's classifiers on CIFAR-10 or Fashion-MNIST, with the images as training reads them.

They are taken out of one array, a whole batch at a time (``__getitems__``, which DataLoader calls where it is
there): 128 images of CIFAR-10 took 1.4 ms on one core, where the same transforms of torchvision, image by
image, took 16 ms on tensors and 25 ms on PIL's images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from raybench.errors import RequestError, first_line
from raybench.spec.user_input import did_you_mean
from raybench.spec.workloads import VisionSpec
from raybench.workloads.data_files import MappedArrays, sample_count
from raybench.workloads.published_images import PUBLISHED_IMAGES

Batch = tuple[torch.Tensor, torch.Tensor]
Sample = tuple[torch.Tensor, int]
NUM_CHANNELS = 3
SMALL_IMAGES = 64  # pixels a side, from which on a ResNet keeps its own stem


class Vision:
    """A classifier, cross entropy, and images: read from ``data``, or random ones of the same shape."""

    def __init__(self, spec: VisionSpec, data: Path | None) -> None:
        """Raise ``RequestError`` for a name that is no classifier."""
        self._spec, self._data = spec, data
        self._published = PUBLISHED_IMAGES[spec.data_set]
        self._size = spec.image_size or self._published.image_size
        self.num_classes = spec.num_classes or self._published.num_classes
        names = torchvision.models.list_models(module=torchvision.models)
        if spec.model not in names:
            raise RequestError(
                "workload.model: a classifier of torchvision.models "
                f"(received {spec.model!r}){did_you_mean(spec.model, names)}"
            )

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


@dataclass(frozen=True)
class Preparation:
    """What happens to a batch of bytes on its way to the model."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int = 0  # pixels around an image before a random crop of its own size; 0: no crop
    flip: bool = False  # half of the images, left to right
    size: int | None = None  # pixels a side; None: as they are

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Bytes of shape (n, channels, height, width) to floats of shape (n, 3, size, size).

        The one channel of a grey image is repeated: every model of torchvision takes three, and so the
        model, its gradients and its operations are the same for every data set.
        """
        if self.padding:
            images = random_crop(images, self.padding)
        if self.flip:
            flipped = torch.rand(len(images)) < 0.5
            images = torch.where(flipped[:, None, None, None], images.flip(3), images)
        mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (self.mean, self.std))
        floats = images.float().mul_(1 / (255 * std)).sub_(mean / std)
        if self.size is not None and floats.shape[-2:] != (self.size, self.size):
            floats = functional.interpolate(
                floats, (self.size, self.size), mode="bilinear", antialias=True, align_corners=False
            )
        return floats.expand(-1, NUM_CHANNELS, -1, -1)


def random_crop(images: torch.Tensor, padding: int) -> torch.Tensor:
    """Each image moved by up to ``padding`` pixels, on black; shape (n, channels, height, width) stays."""
    height, width = images.shape[-2:]
    padded = functional.pad(images, [padding] * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: every crop there is
    down, right = torch.randint(2 * padding + 1, (2, len(images)))
    return windows[torch.arange(len(images)), :, down, right]


class ArrayImages(Dataset[Sample]):
    """Images out of the arrays in ``published.array_folder``; a pickle of it holds only where they are."""

    def __init__(self, folder: Path, split: str, prepare: Preparation, samples: int | None = None) -> None:
        self._stored, self._prepare = MappedArrays(folder, f"{split}_images", f"{split}_labels"), prepare
        self._length = sample_count(len(self._stored.arrays[1]), samples, split)

    def __len__(self) -> int:
        return self._length

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """The samples of one batch: float images of shape (3, size, size) and class numbers."""
        images, labels = self._stored.arrays
        prepared = self._prepare(torch.from_numpy(images[indices]))
        return list(zip(prepared.unbind(), labels[indices].tolist(), strict=True))
