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
