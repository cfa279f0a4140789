"""Cores that the container leaves."""

import pytest

from raybench.machine import host as processor


@pytest.mark.parametrize(
    ("files", "line", "cores"),
    [
        ({}, "0::/a/b", 8),
        ({"a/b/cpu.max": "max 100000"}, "0::/a/b", 8),
        ({"a/b/cpu.max": "250000 100000"}, "0::/a/b", 2),
        ({"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b", 3),
        ({"cpu.max": "150000 100000"}, "0::/", 1),
        ({"a/b/cpu.max": "50000 100000"}, "0::/a/b", 1),
        ({"cpu,io/x/cpu.cfs_quota_us": "400000", "cpu,io/x/cpu.cfs_period_us": "100000"}, "3:cpu,io:/x", 4),
        ({"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, "3:cpu:/x", 8),
    ],
)  # fmt: skip
def test_usable_cores_respect_the_quota(cgroup, files, line, cores):
    cgroup(files, line)
    assert processor.usable_cores() == cores


STAT = "usage_usec 1\nnr_periods {}\nnr_throttled {}\nthrottled_usec 5"


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ({"a/b/cpu.stat": STAT.format(10, 1)}, {"a/b/cpu.stat": STAT.format(30, 6)}, 0.25),
        ({"a/b/cpu.stat": STAT.format(0, 0)}, {"a/b/cpu.stat": STAT.format(0, 0)}, None),  # no quota
        ({"a/b/cpu.stat": "usage_usec 1"}, {"a/b/cpu.stat": "usage_usec 2"}, None),  # the root group of v2
        ({}, {}, None),
        (  # a pod's quota, met by one of its containers
            {"a/cpu.stat": STAT.format(100, 50), "a/b/cpu.stat": STAT.format(0, 0)},
            {"a/cpu.stat": STAT.format(200, 140), "a/b/cpu.stat": STAT.format(0, 0)},
            0.9,
        ),
    ],
)
def test_how_often_a_quota_was_used_up(cgroup, before, after, share):
    cgroup(before)
    periods = processor.quota_periods()
    cgroup(after)
    assert processor.quota_used_up(periods) == share
