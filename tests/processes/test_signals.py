"""What is started while signals are held, or a hangup is ignored."""

from __future__ import annotations

import signal

from tests.processes.starting import Ready

HUNG_UP = """
import os, signal, subprocess, sys
from raybench.errors import Interrupted
from raybench.launch import signals as interrupt
signal.signal(signal.SIGHUP, signal.SIG_DFL)
end_itself = "import os, signal; os.kill(os.getpid(), signal.SIGHUP); print('lives')"
with interrupt.raising():
    with interrupt.hangup_ignored():
        subprocess.run([sys.executable, "-c", end_itself], check=True)
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        interrupt.check()
    except Interrupted as signal_:
        print(signal_)
"""
HELD = """
import os, signal, subprocess, sys
from raybench.launch import signals as interrupt
from raybench.errors import Interrupted
try:
    with interrupt.raising():
        with interrupt.held():
            os.kill(os.getpid(), signal.SIGINT)
            # what is started meanwhile has the system's own handlers, and can be ended
            end_itself = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
            child = subprocess.run([sys.executable, "-c", end_itself])
            print(child.returncode, flush=True)
except Interrupted as signal_:
    print(signal_)
"""

# Ray's core leaves the system's own handler of SIGTERM early in its shutdown; `timeout` sends it twice.
RAY_ENDS = """
import ctypes, os, signal, sys, time, types
from raybench.errors import Interrupted
from raybench.launch import signals as interrupt
from raybench.launch.cluster import Cluster
def shutdown():
    ctypes.CDLL(None).signal(signal.SIGTERM, None)
    time.sleep(0.5)
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)
    print("ended", flush=True)
sys.modules["ray"] = types.SimpleNamespace(shutdown=shutdown)
cluster = Cluster()
cluster._connected = True
try:
    with interrupt.raising():
        with interrupt.held():
            cluster.close()
except Interrupted as signal_:
    print(signal_)
"""


def test_what_starts_while_a_hangup_is_ignored_outlives_it(bare: Ready) -> None:
    done = bare.run(HUNG_UP)
    assert done.stdout.split() == ["lives", "SIGHUP"], done.stderr


def test_programs_started_while_held_are_not_held(bare: Ready) -> None:
    done = bare.run(HELD)
    assert done.stdout.split() == [str(-signal.SIGTERM), "SIGINT"], done.stderr


def test_a_signal_while_ray_ends_is_held_as_any_other(bare: Ready) -> None:
    """It ended the process without a report, where Ray waits seconds for its own."""
    done = bare.run(RAY_ENDS)
    assert done.stdout.split() == ["ended", "SIGTERM"], done.stderr
