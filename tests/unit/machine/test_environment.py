"""What is told of a machine, what never is, and when two of them compare."""

from importlib import metadata

import pytest

import raybench
from raybench.machine.environment import (
    LONGEST_VALUE,
    Environment,
    Spreads,
    capture,
    differences,
    of_nodes,
    unlike_nodes,
)
from raybench.machine.gpus import Gpu


def an_environment(**changes):
    plain = {
        "hostname": "a",
        "os": "Linux",
        "kernel": "6.1",
        "cpu_model": "CPU",
        "cores": 4,
        "usable_cores": 4,
        "memory_bytes": 8 * 2**30,
        "python": "3.12.1",
        "packages": {"torch": "2.14.1"},
        "gpus": [{"name": "V100", "memory_bytes": 16 * 2**30, "power_limit_watts": 300.0, "pci_bus_id": "1"}],
    }
    return Environment.model_validate(plain | changes)


def test_what_is_captured_survives_json():
    found = capture()
    assert Environment.model_validate_json(found.model_dump_json()) == found
    assert 1 <= found.usable_cores <= found.cores
    assert found.memory_bytes > 2**28
    assert found.packages["raybench"] == raybench.__version__
    assert {"torch", "ray", "numpy"} <= set(found.packages)
    assert differences(found, found) == []


def test_spreads_that_say_of_how_many_studies_they_are_are_still_read():
    """As an environment.json from before that went."""
    spreads = {"trial": 0.035, "unit": 0.012, "start": 0.065, "start_unit": 0.018}
    found = an_environment(spreads=spreads | {"studies": 1})
    assert found.spreads == Spreads(**spreads)
    assert Environment.model_validate_json(found.model_dump_json()) == found
    assert found.model_dump()["spreads"] == spreads


def test_the_versions_of_cudnn_and_nccl_are_recorded_and_make_a_difference(monkeypatch):
    """Both come with torch as packages of their own, one for each CUDA."""

    def version(name):
        known = {"nvidia-cudnn-cu13": "9.24.0.43", "nvidia-nccl-cu13": "2.30.7"}
        if name not in known:
            raise metadata.PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(metadata, "version", version)
    found = capture()
    assert found.packages["nvidia-cudnn-cu13"] == "9.24.0.43"
    older = found.model_copy(update={"packages": found.packages | {"nvidia-cudnn-cu13": "9.10.2"}})
    assert differences(older, found) == ["packages.nvidia-cudnn-cu13: 9.10.2 before, 9.24.0.43 now"]


@pytest.mark.parametrize("model", [Environment, Gpu])
def test_every_field_has_a_meaning(model):
    assert [name for name, field in model.model_fields.items() if not field.description] == []


# --- secrets


SECRETS = {
    "RAY_AUTH_TOKEN": "s3cr3t",
    "RAY_REDIS_PASSWORD": "s3cr3t",
    "RAY_ADDRESS": "ray://me:s3cr3t@head:10001",
    "CUDA_API_KEY": "s3cr3t",
    "NCCL_SECRET": "s3cr3t",
    "TORCH_credential": "s3cr3t",
    "SLURM_JOB_USER": "s3cr3t",
    "NCCL_NET_PLUGIN": "http://me:s3cr3t@net/plugin.so",
    "NCCL_X": '{"env_vars": {"WANDB": "s3cr3t"}}',
    "NCCL_Y": "http://head/?token=s3cr3t",
    "TORCH_HUB_AUTH": "s3cr3t",
    "CUDA_REPO_PWD": "s3cr3t",
    "TORCH_APPKEY": "s3cr3t",
    "NCCL_Z": "hf_s3cr3t",
}
NOT_OURS = {"HF_TOKEN": "s3cr3t", "HOME": "/s3cr3t"}
SHOWN = {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1", "NCCL_IB_PKEY": "7"}


def test_no_secret_is_ever_captured(monkeypatch):
    for name, value in {**SECRETS, **NOT_OURS, **SHOWN}.items():
        monkeypatch.setenv(name, value)
    found = capture()
    assert "s3cr3t" not in found.model_dump_json()
    assert SHOWN.items() <= found.variables.items()
    assert SECRETS.keys() <= set(found.other_variables)  # that they are set may matter
    assert NOT_OURS.keys().isdisjoint(found.other_variables)


def test_variables_can_be_written_and_read(monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG_FILE", "/tmp/\udcff\x1b[2J")
    monkeypatch.setenv("NCCL_TOPO_FILE", "x" * 100_000)
    found = capture()
    assert Environment.model_validate_json(found.model_dump_json()) == found
    assert found.variables["NCCL_DEBUG_FILE"] == r"/tmp/\udcff\x1b[2J"
    assert len(found.variables["NCCL_TOPO_FILE"]) == LONGEST_VALUE


# --- comparing


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"cpu_model": "CPU 2"}, "cpu_model: CPU before, CPU 2 now"),
        ({"usable_cores": 2}, "usable_cores: 4 before, 2 now"),
        ({"governor": "powersave"}, "governor: none before, powersave now"),
        ({"python": "3.13.0"}, "python: 3.12.1 before, 3.13.0 now"),
        ({"packages": {"torch": "2.15.0"}}, "packages.torch: 2.14.1 before, 2.15.0 now"),
        ({"packages": {}}, "packages.torch: 2.14.1 before, none now"),
        ({"memory_bytes": 4 * 2**30}, f"memory_bytes: {8 * 2**30} before, {4 * 2**30} now"),
        ({"driver_version": "560.1"}, "driver_version: none before, 560.1 now"),
        ({"variables": {"NCCL_ALGO": "Ring"}}, "variables.NCCL_ALGO: none before, Ring now"),
        ({"other_variables": ["NCCL_X"]}, "variables.NCCL_X: none before, set now"),
        (
            {"gpus": [{"name": "A100", "memory_bytes": 16 * 2**30, "power_limit_watts": 300.0}]},
            "gpus[0].name: V100 before, A100 now",
        ),
        (
            {"gpus": [{"name": "V100", "memory_bytes": 16 * 2**30, "power_limit_watts": 250.0}]},
            "gpus[0].power_limit_watts: 300.0 before, 250.0 now",
        ),
        ({"gpu_links": [["X", "NV4"], ["NV4", "X"]]}, "gpu_links[0]: none before, X NV4 now"),
    ],
)
def test_what_makes_two_incomparable_is_named(changes, line):
    assert line in differences(an_environment(), an_environment(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"hostname": "b"},
        {"clock_mhz": 999.0},
        {"kernel": "6.2", "commit": "b", "dirty": True},
        {"memory_bytes": 8 * 2**30 - 10 * 2**20},
        {
            "variables": {
                "RAY_ADDRESS": "auto",
                "SLURM_JOB_ID": "8",
                "CUDA_VISIBLE_DEVICES": "1",
                "NCCL_DEBUG": "INFO",
            }
        },
        {
            "gpus": [
                {
                    "name": "V100",
                    "memory_bytes": 16 * 2**30,
                    "power_limit_watts": 300.0,
                    "compute_capability": "7.0",
                }
            ]
        },
    ],
)
def test_what_may_change(changes):
    assert differences(an_environment(), an_environment(**changes)) == []


def test_memory_may_differ_by_1_percent():
    before = an_environment(memory_bytes=int(62.51 * 2**30))
    assert differences(before, an_environment(memory_bytes=int(62.49 * 2**30))) == []
    assert len(differences(before, an_environment(memory_bytes=int(61.5 * 2**30)))) == 1


def test_fields_of_a_later_version_are_ignored():
    assert Environment.model_validate({**an_environment().model_dump(), "later": 1}) == an_environment()


# --- of a cluster


def test_of_one_node_it_is_that_nodes_own():
    assert of_nodes([an_environment()]) == an_environment()


def test_nodes_that_are_alike_differ_in_nothing():
    nodes = [an_environment(hostname=name, clock_mhz=clock) for name, clock in (("a", 1e3), ("b", 3e3))]
    environment = of_nodes(nodes)
    assert [node.hostname for node in environment.every_node] == ["a", "b"]
    assert unlike_nodes(environment) == []
    assert Environment.model_validate_json(environment.model_dump_json()) == environment


def test_in_what_nodes_differ_is_said_with_who_has_which():
    names = ["a", "b", "c", "d", "e", "f"]
    nodes = [an_environment(hostname=name) for name in names]
    nodes[1] = an_environment(hostname="b", packages={"torch": "2.13.0"}, memory_bytes=8 * 2**30 + 1)
    assert unlike_nodes(of_nodes(nodes)) == [
        "packages.torch: 2.14.1 on a, c, d, e and 1 more, 2.13.0 on b",
    ]


def test_a_cluster_goes_on_with_the_same_kinds_of_nodes_in_any_order():
    slow, fast = an_environment(hostname="a"), an_environment(hostname="b", cores=8)
    assert differences(of_nodes([slow, fast]), of_nodes([fast, slow])) == []
    assert differences(of_nodes([slow, fast]), slow) == ["nodes: 2 before, 1 now"]
    assert differences(of_nodes([slow, fast]), of_nodes([slow, slow])) == ["cores: 8 before, 4 now"]


def test_a_run_goes_on_with_fewer_nodes_of_those_kinds() -> None:
    slow, fast = an_environment(hostname="a"), an_environment(hostname="b", cores=8)
    before = of_nodes([slow, fast, fast])
    assert differences(before, fast, may_lack_nodes=True) == []
    assert differences(before, of_nodes([fast, slow]), may_lack_nodes=True) == []
    assert differences(before, of_nodes([slow, slow]), may_lack_nodes=True) == ["cores: 8 before, 4 now"]
    more = of_nodes([slow, fast, fast, fast])
    assert differences(before, more, may_lack_nodes=True) == ["nodes: 3 before, 4 now"]
