"""Memory that the container leaves."""

from types import SimpleNamespace

from raybench.machine import host


def test_memory_limit_of_a_container(cgroup):
    cgroup({"a/b/memory.max": "max", "a/memory.max": "1048576"})
    assert host.memory_limit_bytes() == 1048576


def test_no_memory_limit(cgroup):
    cgroup({"memory/x/memory.limit_in_bytes": "9223372036854771712"}, "4:memory:/x")
    assert host.memory_limit_bytes() is None


def test_available_memory_is_the_containers_where_it_has_less_than_the_host(cgroup, monkeypatch):
    total = host.psutil.virtual_memory().available
    monkeypatch.setattr(host.psutil, "virtual_memory", lambda: SimpleNamespace(available=total))
    cgroup({"memory.max": "max", "memory.current": "5"})
    assert host.available_memory_bytes() == total
    cgroup(
        {
            "a/memory.max": "1048576",
            "a/memory.current": "1000000",
            "a/memory.stat": "anon 7\ninactive_file 500000",
        }
    )
    assert host.available_memory_bytes() == 1048576 - 1000000 + 500000
    cgroup({"a/b/memory.max": "4096", "a/b/memory.current": "5000"})
    assert host.available_memory_bytes() == 0


def test_available_memory_in_the_older_control_groups(cgroup):
    files = {
        "memory/x/memory.limit_in_bytes": "2097152",
        "memory/x/memory.usage_in_bytes": "1048576",
        "memory/x/memory.stat": "total_inactive_file 4096",
    }
    cgroup(files, "4:memory:/x")
    assert host.available_memory_bytes() == 1048576 + 4096
