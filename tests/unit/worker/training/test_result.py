"""What a rank tells of its memory when all epochs are done."""

from raybench.worker.devices.device import MemoryPeak
from raybench.worker.training.training_trial import TrainingRankReport


def test_memory_is_the_most_of_any_epoch_that_tells_it():
    """A GPU's own peak is known until raybench has looked at something beside the training."""
    peaks = [MemoryPeak(torch=5, device=9), MemoryPeak(torch=6, device=None)]
    report = TrainingRankReport.of(peaks, [(5, 7), (6, 4)], None)
    assert report.memory == MemoryPeak(torch=6, device=9)
    assert report.driven == (6, 7)  # of each device that dp drives
    assert TrainingRankReport.of([MemoryPeak(None, None)], [()], None).memory == MemoryPeak(None, None)
