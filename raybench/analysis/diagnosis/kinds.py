"""The closed list: every kind of finding that there is, once.

Each is a class with its condition, its evidence and its next step. A diagnosis asks them all and ranks what
it finds by the time that each explains (``findings.ranked``).
"""

from __future__ import annotations

from raybench.analysis.diagnosis.case import OfTrial
from raybench.analysis.diagnosis.communication import (
    BandwidthBound,
    CommunicationBound,
    LatencyBound,
    SlowPath,
)
from raybench.analysis.diagnosis.compute import CostlyWrapper, DataBound
from raybench.analysis.diagnosis.contention import Contention, MemoryOrPcie, OtherProcesses
from raybench.analysis.diagnosis.evenness import Straggler, UnevenDevices
from raybench.analysis.diagnosis.failures import Crashed, NotReached, OutOfMemory, Refused, TimedOut
from raybench.analysis.diagnosis.findings import Kind
from raybench.analysis.diagnosis.fixed_costs import BatchTooSmall, LaunchBound, MemoryBound
from raybench.analysis.diagnosis.gains import NoSignificantGain, PrecisionWithoutGain
from raybench.analysis.diagnosis.machine_state import Oversubscribed, Throttling
from raybench.analysis.diagnosis.repeatability import (
    MeasuredUnderLoad,
    MeasurementsDisagree,
    SeveralDevices,
)
from raybench.analysis.diagnosis.soundness import LossesDisagree, NotAllMeasured
from raybench.analysis.diagnosis.steadiness import Drift, NoisyMeasurement, OutlierRounds
from raybench.analysis.diagnosis.undivided import NegativeScaling, NotDivided
from raybench.analysis.diagnosis.waiting import Jitter, UnevenBatches
from raybench.analysis.diagnosis.whole import OfStudy

# what is to be said against a trial's numbers, whatever it is for
DOUBTS: tuple[type[OfTrial], ...] = (
    Oversubscribed, NoisyMeasurement, OutlierRounds, Drift, OtherProcesses, Throttling, UnevenDevices,
    Straggler, LossesDisagree, NotAllMeasured,
)  # fmt: skip
OF_TRIAL: tuple[type[OfTrial], ...] = (
    *DOUBTS, SlowPath, LatencyBound, BandwidthBound, CommunicationBound, Contention, MemoryOrPcie,
    CostlyWrapper, UnevenBatches, Jitter, DataBound, LaunchBound, BatchTooSmall, MemoryBound,
    NotDivided, NegativeScaling,
)  # fmt: skip
# on a trial beside others of its study
OF_COMPARED: tuple[type[OfStudy], ...] = (PrecisionWithoutGain,)
OF_STUDY: tuple[type[OfStudy], ...] = (
    Crashed, TimedOut, OutOfMemory, Refused, NoSignificantGain, MeasurementsDisagree,
    MeasuredUnderLoad, SeveralDevices, NotReached,
)  # fmt: skip
EVERY: tuple[type[Kind], ...] = (*OF_TRIAL, *OF_COMPARED, *OF_STUDY)
