"""The files of deploy/: what they ask of Slurm and Kubernetes, and that each says what was tried."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from raybench import study as command_line
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
BATCH_FILES = sorted((DEPLOY / "slurm").glob("*.sbatch"))
RAYJOB = DEPLOY / "kubernetes" / "rayjob.yaml"
# of KubeRay's published types (apis/ray/v1: RayJobSpec, RayClusterSpec, its groups): what is used here
SPEC = {
    "entrypoint": str,
    "entrypointNumCpus": int,
    "shutdownAfterJobFinishes": bool,
    "ttlSecondsAfterFinished": int,
    "activeDeadlineSeconds": int,
    "backoffLimit": int,
    "rayClusterSpec": dict,
}
GROUP = {"rayStartParams": dict, "template": dict}
WORKERS = GROUP | {"groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int}


def directives(file: Path) -> dict[str, str]:
    """The options that sbatch reads from a file: comments before its first command."""
    lines = file.read_text().splitlines()
    commands = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    found = [line.split()[1] for line in lines[: commands[0]] if line.startswith("#SBATCH ")]
    assert len(found) == sum(line.startswith("#SBATCH") for line in lines), (
        "sbatch stops at the first command"
    )
    return {name: value for name, _, value in (each.partition("=") for each in found)}


def test_files_are_there() -> None:
    assert {file.stem for file in BATCH_FILES} == {"one-node", "several-nodes", "several-nodes-symmetric"}


@pytest.mark.parametrize("file", [*BATCH_FILES, RAYJOB], ids=lambda file: file.name)
def test_the_tests_that_each_names_are_there(file: Path) -> None:
    for test in re.findall(r"tests/[\w/]+\.py", file.read_text()):
        assert (ROOT / test).exists(), test


@pytest.mark.parametrize("file", BATCH_FILES, ids=lambda file: file.name)
def test_one_task_a_node_starts_the_processes_of_all_devices(file: Path) -> None:
    asked = directives(file)
    per_node = asked.get("--ntasks-per-node", asked.get("--ntasks"))
    assert per_node == "1"
    assert asked["--partition"]
    assert asked["--time"]
    code = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    assert not any("torchrun" in line for line in code)


def _typed(found: dict[str, Any], fields: dict[str, type]) -> None:
    assert set(found) == set(fields)
    for name, kind in fields.items():
        assert type(found[name]) is kind, name


@pytest.mark.promise("kubernetes")
def test_the_rayjob_is_as_kuberay_asks() -> None:
    (job,) = yaml.safe_load_all(RAYJOB.read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    _typed(job["spec"], SPEC)
    cluster = job["spec"]["rayClusterSpec"]
    assert set(cluster) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    _typed(cluster["headGroupSpec"], GROUP)
    (workers,) = cluster["workerGroupSpecs"]
    _typed(workers, WORKERS)
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"]
    for group in (cluster["headGroupSpec"], workers):
        assert all(type(value) is str for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert all(type(value) is str for value in container["resources"]["limits"].values())
    gpus = workers["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert workers["rayStartParams"]["num-gpus"] == gpus
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_the_command_of_the_rayjob_can_be_typed() -> None:
    (job,) = yaml.safe_load_all(RAYJOB.read_text())
    program, *arguments = shlex.split(job["spec"]["entrypoint"])
    assert program == "raybench"
    done = CliRunner().invoke(command_line.app, [*arguments, "--dry-run", "--device", "cpu"])
    assert done.exit_code == 0, done.output
