"""What a rank tells of its memory when all epochs are done."""

from raybench.worker.devices.base import MemoryPeak
from raybench.worker.training.result import TrainingRankReport


def test_memory_is_the_most_of_any_epoch_that_tells_it():
    """A GPU's own peak is known until raybench has looked at something beside the training."""
    peaks = [MemoryPeak(torch=5, device=9), MemoryPeak(torch=6, device=None)]
    assert TrainingRankReport.of(peaks, None).memory == MemoryPeak(torch=6, device=9)
    assert TrainingRankReport.of([MemoryPeak(None, None)], None).memory == MemoryPeak(None, None)
