"""Numbers with their intervals, as findings say them."""

from __future__ import annotations

from raybench.analysis.estimates.statistics import Estimate


def ms(seconds: Estimate) -> str:
    """A time: "1.62 ms [1.55, 1.69]"."""
    scaled = seconds.scaled(1e3)
    digits = 0 if scaled.value >= 100 else 1 if scaled.value >= 10 else 2
    return f"{scaled.value:,.{digits}f} ms [{scaled.low:,.{digits}f}, {scaled.high:,.{digits}f}]"


def pct(share: Estimate) -> str:
    """A share: "12% [10, 14]"."""
    scaled = share.scaled(100)
    digits = 1 if scaled.half_width < 0.5 else 0
    return f"{scaled.value:.{digits}f}% [{scaled.low:.{digits}f}, {scaled.high:.{digits}f}]"


def pct_range(share: Estimate) -> str:
    """A share of which only the ends are known: "81% to 86%"."""
    return f"{share.low:.0%} to {share.high:.0%}"


def factor(ratio: Estimate) -> str:
    """A ratio: "1.62x [1.55, 1.69]"."""
    return f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]"


def factor_range(ratio: Estimate) -> str:
    """A ratio of which only the ends are known: "1.2x to 1.6x"."""
    return f"{ratio.low:.2f}x to {ratio.high:.2f}x"


def bandwidth(rate: Estimate) -> str:
    """A bandwidth in bytes/s: "1.62 GB/s [1.55, 1.69]" (10^9 bytes), a small one in MB/s."""
    unit, factor = ("GB/s", 1e-9) if rate.value >= 1e8 else ("MB/s", 1e-6)
    scaled = rate.scaled(factor)
    return f"{scaled.value:.2f} {unit} [{scaled.low:.2f}, {scaled.high:.2f}]"


def size(size_bytes: int) -> str:
    """An amount of memory: "1.4 MiB", "6.0 KiB"."""
    return f"{size_bytes / 2**20:.1f} MiB" if size_bytes >= 2**19 else f"{size_bytes / 2**10:.1f} KiB"


def rate(estimate: Estimate) -> str:
    """Samples/s: "10,101 [9,870, 10,330]", of few "12.3 [12.1, 12.5]"."""
    digits = 0 if estimate.value >= 100 else 1 if estimate.value >= 10 else 2
    return f"{estimate.value:,.{digits}f} [{estimate.low:,.{digits}f}, {estimate.high:,.{digits}f}]"
