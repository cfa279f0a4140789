"""Images as training reads them: map-style data sets, their augmentation and normalisation.

The small published images are taken out of one array, a whole batch at a time (``__getitems__``, which
DataLoader calls where it is there): 128 images of CIFAR-10 took 1.4 ms on one core, where the same
transforms of torchvision, image by image, took 16 ms on tensors and 25 ms on PIL's images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional
from torch.utils.data import Dataset

from raybench.workloads.data_files import sample_count
from raybench.workloads.published_images import open_arrays

Sample = tuple[torch.Tensor, int]
NUM_CHANNELS = 3


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
        self._stored, self._prepare = open_arrays(folder, split), prepare
        self._length = sample_count(len(self._stored.arrays[1]), samples, split)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Sample:
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self.__getitems__([index % self._length])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """The samples of one batch: float images of shape (3, size, size) and class numbers."""
        images, labels = self._stored.arrays
        prepared = self._prepare(torch.from_numpy(images[indices]))
        return list(zip(prepared.unbind(), labels[indices].tolist(), strict=True))
