"""This machine is examined, and two workers talk to each other."""

from raybench.machine.checks import examine


def test_this_machine_is_examined_and_two_workers_all_reduce():
    found = examine()
    assert {"Python", "devices", "gloo interface", "shared memory"} < {each.name for each in found}
    assert [each for each in found if each.status == "missing"] == []
    last = found[-1]
    assert last.name == "all-reduce"
    assert "2 workers, gloo, 16 MiB: median" in last.found or "nccl" in last.found
    assert "n = 20" in last.found
