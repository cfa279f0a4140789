"""One line on why a worker group died, out of errors as Ray Train gives them."""

import pytest
import ray

from raybench.launch.nodes import LONGEST_ERROR
from raybench.launch.worker_group import ran_out_of_memory, reason


class WorkerGroupError(Exception):
    """As Ray Train's: the failures of the workers by rank."""

    def __init__(self, failures: dict[int, BaseException]) -> None:
        self.worker_failures = failures
        super().__init__(f"Training failed due to worker errors:\n{failures}")


class HealthCheckError(Exception):
    """As Ray Train's: why a worker's health check failed."""

    def __init__(self, failure: BaseException) -> None:
        self.health_check_failure = failure
        super().__init__(f"A worker health check failed.\nWorker info: ...\n{failure}")


DIED = HealthCheckError(
    RuntimeError(
        "The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: RayTrainWorker\n"
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR "
        "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. "
        "There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer"
    )
)
TRACEBACK = RuntimeError(
    "\x1b[36mray::RayTrainWorker.run()\x1b[39m\n"
    '  File "my_model.py", line 3, in loss\n'
    "    raise ValueError('bad label')\n"
    "ValueError: bad label\n"
)
ECHO = RuntimeError(
    "Traceback\nRuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:44"
)


def test_the_rank_that_failed_is_named_with_the_line_of_its_error():
    assert reason(WorkerGroupError({1: TRACEBACK})) == "rank 1: ValueError: bad label"


def test_the_rank_that_failed_first_rather_than_those_that_noticed():
    found = reason(WorkerGroupError({0: ECHO, 1: TRACEBACK, 2: ECHO}))
    assert found == "rank 1: ValueError: bad label"


def test_where_all_only_noticed_one_of_them_is_better_than_nothing():
    found = reason(WorkerGroupError({1: ECHO, 0: ECHO}))
    assert found.startswith("rank 0: RuntimeError: ")
    assert "Connection closed by peer" in found


def test_a_process_that_died_is_said_with_how():
    found = reason(WorkerGroupError({0: DIED}))
    assert found == ("rank 0: its process died (Worker unexpectedly exits with a connection error code 2)")


def test_an_error_of_no_worker_is_told_itself():
    assert reason(ValueError("no such thing\nand more")) == "ValueError: no such thing"
    assert reason(TimeoutError()) == "TimeoutError"


def test_a_reason_is_one_line_and_not_endless():
    found = reason(WorkerGroupError({0: RuntimeError("x" * 5000)}))
    assert "\n" not in found
    assert len(found) <= LONGEST_ERROR + len("rank 0: ")


def test_rays_memory_monitor_is_found_wherever_it_hides():
    killed = ray.exceptions.OutOfMemoryError("Task was killed due to the node running low on memory.")
    assert ran_out_of_memory(killed)
    assert ran_out_of_memory(WorkerGroupError({0: TRACEBACK, 1: HealthCheckError(killed)}))
    outer = RuntimeError("outer")
    outer.__cause__ = killed
    assert ran_out_of_memory(outer)


@pytest.mark.parametrize(
    "last",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "MemoryError",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:95\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
    ],
)
def test_a_worker_that_had_no_memory_is_known_by_the_end_of_its_traceback(last):
    lines = 'ray::RayTrainWorker.run()\n  File "a.py", line 3, in loss\n    step()\n'
    assert ran_out_of_memory(WorkerGroupError({0: ECHO, 1: RuntimeError(lines + last)}))


def test_code_that_a_traceback_quotes_is_no_message():
    text = "  File \"a.py\", line 3\n    raise ValueError('out of memory')\nValueError: bad label\n"
    assert not ran_out_of_memory(WorkerGroupError({0: RuntimeError(text)}))


def test_other_deaths_are_not_taken_for_it():
    assert not ran_out_of_memory(WorkerGroupError({0: DIED, 1: TRACEBACK}))
    # the words alone, which Ray writes of every death, do not make one
    assert not ran_out_of_memory(RuntimeError("(1) The process is killed by SIGKILL by OOM killer"))


def test_errors_that_refer_to_each_other_end():
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert not ran_out_of_memory(one)
