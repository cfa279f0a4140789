"""Seconds of cores, by the program that took them."""

from raybench.machine import core_time


def test_ray_is_one_program():
    look = {1: ("Ray", 1.0), 2: ("Ray", 2.0), 3: ("chrome", 0.5)}
    later = {1: ("Ray", 1.5), 2: ("Ray", 2.25), 3: ("chrome", 0.5), 4: ("new", 0.1)}
    assert core_time.seconds_by_name(look, later, without=()) == {"Ray": 0.75, "new": 0.1, "chrome": 0.0}
    renamed = core_time.seconds_by_name({5: ("a", 9.0), 6: ("b", 9.0)}, {5: ("c", 9.5), 6: ("d", 1.0)}, ())
    assert renamed == {"d": 1.0, "c": 0.5}  # the id 6 is another process now
    assert core_time._family({"name": "python", "cmdline": ["python", "x/ray/dashboard/agent.py"]}) == "Ray"
    assert core_time._family({"name": "raylet", "cmdline": []}) == "Ray"
    assert core_time._family({"name": "cat", "cmdline": ["cat"]}) == "cat"
    assert core_time._family({"name": "kworker/u8:0-writeback", "cmdline": []}) == "kernel"
    loader = ["python", "-c", "main(sys_path=['lib/ray/thirdparty_files'])"]
    assert core_time._family({"name": "python", "cmdline": loader}) == "python"
