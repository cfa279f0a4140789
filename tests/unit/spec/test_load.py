"""Studies from files, names and options; every wrong one is answered with field, rule and value."""

# ruff: noqa: E501 - a case and its answer stand on one line

import math
from pathlib import Path

import pytest

from raybench.errors import RequestError
from raybench.spec.load import find_study, load_study, question, resolve, studies
from raybench.spec.study import Study
from raybench.spec.user_input import to_toml

MLP = {"name": "x", "workload": {"name": "mlp"}}


def problems(call, *arguments, **options):
    with pytest.raises(RequestError) as caught:
        call(*arguments, **options)
    assert all("\n" not in line for line in caught.value.problems)
    return list(caught.value.problems)


def refused(**tables):
    return problems(resolve, {**MLP, **tables})


# --- files and names


def test_every_study_that_ships_loads_on_cores_on_gpus_and_small():
    assert {"resnet18_cifar10", "resnet18_fashion_mnist"} <= set(studies())
    for name, path in studies().items():
        for device in ("cpu", "cuda"):
            for smoke in (False, True):
                study = load_study(path, device=device, smoke=smoke)
                assert study.name == name
                assert study.smoke == {}
                assert study.cuda == {}


@pytest.mark.parametrize("name", ["transformer_imdb", "transformer_ag_news", "transformer_ag_news_tuned"])
def test_what_the_write_up_calls_implemented_is_on_in_all_its_studies(name):
    for smoke in (False, True):
        knobs = load_study(find_study(name), device="cuda", smoke=smoke).knobs
        assert knobs.static_graph == knobs.cudnn_benchmark == knobs.persistent_workers == (True,)
        assert knobs.workers[0] > 0  # else nobody persists
        on_cores = load_study(find_study(name), device="cpu", smoke=smoke).knobs
        assert on_cores.static_graph == (True,)
        assert on_cores.default().fault("cpu") is None


def test_the_cure_ends_in_fp16_on_gpus_as_its_write_up_does():
    knobs = load_study(find_study("transformer_ag_news_tuned"), device="cuda").knobs
    assert knobs.precision == ("fp32", "bf16", "fp16")
    last = {name: values[-1] for name, values in knobs.explored().items()}
    together = knobs.default("cuda").model_copy(update=last)
    assert together.precision == "fp16"
    assert together.fault("cuda") is None


def test_every_study_that_ships_has_a_header():
    for path in studies().values():
        header = path.read_text().partition("\nname = ")[0]
        assert question(path).endswith("?")
        assert all(f"\n# {word}:" in header for word in ("Run", "Needs", "Expect")), path


def test_a_question_is_the_first_line_of_the_leading_comment(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text("#\n# Why?\n# Run: x\nname = 'x' # no\n# nor this\n")
    assert question(path) == "Why?"
    path.write_text("name = 'x'\n# nor this\n")
    assert question(path) == question(tmp_path / "none") == ""


def test_studies_are_found_by_name_and_by_path(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("name = 'mine'\n[workload]\nname = 'mlp'\n")
    assert find_study(str(path)) == path
    assert find_study("resnet18_cifar10") == studies()["resnet18_cifar10"]


def test_an_unknown_study_is_answered_with_the_nearest_and_the_list():
    first, second = problems(find_study, "resnet18_cifar1")
    assert first == 'unknown study "resnet18_cifar1", did you mean resnet18_cifar10?'
    assert "resnet18_fashion_mnist" in second


def test_no_study_means_the_default_one():
    if "default" in studies():
        assert find_study(None) == studies()["default"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"name = ", "not TOML: Invalid value (at end of document)"),
        (b"name = 'x'\nname = 'y'\n", "at line 2"),
        (b"name = '\xff'\n", "not TOML: 'utf-8' codec can't decode byte 0xff in position 8"),
    ],
)
def test_a_file_that_is_no_study(tmp_path, content, says):
    path = tmp_path / "s.toml"
    path.write_bytes(content)
    (line,) = problems(load_study, path)
    assert line.startswith(f"{path}: ")
    assert says in line


def test_a_directory_and_a_missing_file(tmp_path):
    assert problems(load_study, find_study(str(tmp_path))) == [f"{tmp_path}: cannot be read: Is a directory"]
    gone = tmp_path / "gone.toml"
    assert problems(load_study, find_study(str(gone))) == [
        f"{gone}: cannot be read: No such file or directory"
    ]


# --- layers


LAYERED = """
name = "x"
[workload]
name = "mlp"
hidden_dim = 8
[knobs]
batch_size = 1
[cuda]
"knobs.batch_size" = [2, 3]
"workload.hidden_dim" = 16
[smoke]
"workload.hidden_dim" = 4
measure.max_seconds = 6
"""


def test_file_then_cuda_then_smoke_then_options(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(LAYERED)
    plain = load_study(path)
    assert (plain.workload.hidden_dim, plain.knobs.batch_size, plain.measure.max_seconds) == (8, (1,), 20)
    cuda = load_study(path, device="cuda")
    assert (cuda.workload.hidden_dim, cuda.knobs.batch_size) == (16, (2, 3))
    both = load_study(path, device="cuda", smoke=True)
    assert (both.workload.hidden_dim, both.knobs.batch_size, both.measure.max_seconds) == (4, (2, 3), 6)
    set_ = load_study(path, smoke=True, overrides=[("workload.hidden_dim", 5), ("workload.hidden_dim", 7)])
    assert set_.workload.hidden_dim == 7
    assert resolve(set_.model_dump()) == set_


def test_a_dotted_field_that_leads_nowhere():
    for key, answer in {
        "workload.hiden_dim": "workload.hiden_dim: unknown field, did you mean workload.hidden_dim?",
        "knobs.batchsize": "knobs.batchsize: unknown field, did you mean knobs.batch_size?",
        "mesure.max_seconds": "mesure: unknown field, did you mean measure?",
        "name.x": 'name.x: unknown field, name is a value (received "x")',
        "trials": "trials: unknown field, did you mean search.trials?",
        "knobs..x": '"knobs..x": a dotted field such as knobs.batch_size',
    }.items():
        assert problems(resolve, MLP, overrides=[(key, 3)]) == [answer]
        if key != "knobs..x":
            assert problems(resolve, {**MLP, "smoke": {key: 3}}, smoke=True) == [answer]


def test_layers_must_be_tables():
    assert refused(smoke=3) == ["smoke: a table of dotted fields and values (received 3)"]
    assert refused(cuda=[1]) == ["cuda: a table of dotted fields and values (received [1])"]


# --- what a study may not say


@pytest.mark.parametrize(
    ("tables", "lines"),
    [
        ({"scaling": {"world_sizes": 0}}, ['scaling.world_sizes: whole numbers above 0, each once, or "all" (received 0)']),
        (
            {"scaling": {"world_sizes": [1, 0, -2]}},
            [
                'scaling.world_sizes[1]: whole numbers above 0, each once, or "all" (received 0)',
                'scaling.world_sizes[2]: whole numbers above 0, each once, or "all" (received -2)',
            ],
        ),
        ({"scaling": {"world_sizes": "al"}}, ['scaling.world_sizes: whole numbers above 0, each once, or "all" (received "al"), did you mean "all"?']),
        ({"scaling": {"world_sizes": []}}, ["scaling.world_sizes: at least one value (received [])"]),
        ({"scaling": {"world_sizes": [2, 2]}}, ["scaling.world_sizes: each value once, 2 stands there twice (received [2, 2])"]),
        ({"scaling": {"placement": "pak"}}, ['scaling.placement: "pack", "spread" or ranks, each once, such as [0, 1] (received "pak"), did you mean "pack"?']),
        ({"scaling": {"placement": [0, 0]}}, ["scaling.placement: each value once, 0 stands there twice (received [0, 0])"]),
        ({"scaling": {"placement": [[0, 1], [1, 0]]}}, ["scaling.placement: each value once, (0, 1) stands there twice (received [[0, 1], [1, 0]])"]),
        ({"scaling": {"placement": [0, -1]}}, ['scaling.placement: "pack", "spread" or ranks, each once, such as [0, 1] (received [0, -1])']),
        ({"scaling": {"mode": "medium"}}, ['scaling.mode: "weak" or "strong" (received "medium")']),
        ({"knobs": {"batch_size": 0}}, ["knobs.batch_size: a whole number above 0 or \"max\" (received 0)"]),
        ({"knobs": {"batch_size": [8, "x"]}}, ['knobs.batch_size[1]: a whole number above 0 or "max" (received "x")']),
        ({"knobs": {"batch_size": []}}, ["knobs.batch_size: at least one value (received [])"]),
        ({"knobs": {"batch_size": [8, 8]}}, ["knobs.batch_size: each value once, 8 stands there twice (received [8, 8])"]),
        ({"knobs": {"precision": "fp8"}}, ['knobs.precision: "fp32", "tf32", "bf16", "fp16" or "default" (received "fp8")']),
        ({"knobs": {"precision": ["fp32", "fp33"]}}, ['knobs.precision[1]: "fp32", "tf32", "bf16", "fp16" or "default" (received "fp33"), did you mean "fp32"?']),
        ({"knobs": {"bucket_cap_mb": -5}}, ['knobs.bucket_cap_mb: a number of MiB above 0, several as "1/5/25", or "default" (received -5)']),
        ({"knobs": {"bucket_cap_mb": [1, "big"]}}, ['knobs.bucket_cap_mb[1]: a number of MiB above 0, several as "1/5/25", or "default" (received "big")']),
        ({"knobs": {"static_graph": "yes"}}, ['knobs.static_graph: true or false (received "yes")']),
        ({"knobs": 3}, ["knobs: a table (received 3)"]),
        ({"search": {"trials": -1}}, ["search.trials: a whole number above 0 (received -1)"]),
        ({"search": {"objectives": ["speed"]}}, ['search.objectives[0]: "throughput", "efficiency", "cost_per_sample" or "peak_memory" (received "speed")']),
        ({"measure": {"max_seconds": "soon"}}, ['measure.max_seconds: a number above 0 and at most 100,000,000 (received "soon")']),
        ({"measure": {"max_seconds": 9, "timeout_seconds": 3}}, ["measure: timeout_seconds must exceed max_seconds (3.0 <= 9.0)"]),
        ({"measure": {"half_width": math.nan}}, ["measure.half_width: a number above 0 and below 1 (received nan)"]),
        ({"optimizer": {"momentum": 2}}, ["optimizer.momentum: a number of at least 0 and below 1 (received 2)"]),
        ({"name": "a b"}, ['name: text of letters, digits, dots, dashes and underscores, 100 at most (received "a b")']),
        ({"seed": -1}, ["seed: a whole number of at least 0 (received -1)"]),
        ({"data": 3}, ["data: text (received 3)"]),
        ({"environment": {"OMP_PROC_BIND": []}}, ["environment.OMP_PROC_BIND: at least one value (received [])"]),
        ({"environment": {"A": {"b": 1}}}, ["environment.A: text, or a list of texts (received {b = 1})"]),
        ({"workload": {"name": "mlp", "hiden_dim": 3}}, ["workload.hiden_dim: unknown field, did you mean workload.hidden_dim?"]),
        ({"workload": {"name": "mlp", "hidden_dim": 0}}, ["workload.hidden_dim: a whole number above 0 (received 0)"]),
        ({"workload": {"name": "visio"}}, ['workload: a table with one of name (mlp, vision, text, causal_lm), factory, trainer, lightning, script (received {name = "visio"}), did you mean "vision"?']),
        ({"workload": {"name": [1]}}, ['workload: a table with one of name (mlp, vision, text, causal_lm), factory, trainer, lightning, script (received {name = [1]})']),
        ({"workload": {"name": "factory"}}, ['workload.factory: must be given']),
        ({"workload": {}}, ["workload: a table with one of name (mlp, vision, text, causal_lm), factory, trainer, lightning, script (received {})"]),
        ({"workload": 3}, ["workload: a table with one of name (mlp, vision, text, causal_lm), factory, trainer, lightning, script (received 3)"]),
        ({"workload": {"name": "mlp", "factory": "a:b"}}, ['workload: a table with one of name (mlp, vision, text, causal_lm), factory, trainer, lightning, script (received {name = "mlp", factory = "a:b"})']),
        ({"workload": {"name": "text", "model": "gpt2"}}, ['workload.model: "encoder" or "distilbert" (received "gpt2")']),
        ({"workload": {"name": "text", "num_heads": 5}}, ["workload: hidden_dim 128 must be divisible by num_heads 5"]),
        ({"workload": {"name": "text", "checkpoint": "x"}}, ['workload: checkpoint goes with model = "distilbert" (received "encoder")']),
        ({"workload": {"name": "text", "model": "distilbert", "checkpoint": "x", "num_layers": 2}}, ["workload: num_layers is the checkpoint's own (received 2)"]),
        ({"workload": {"name": "causal_lm", "sequence_length": 2}}, ["workload.sequence_length: a whole number of at least 4 (received 2)"]),
        ({"workload": {"trainer": "a:b", "factory": "a:b"}}, ['workload: a table with one of name (mlp, vision, text, causal_lm), factory, trainer, lightning, script (received {trainer = "a:b", factory = "a:b"})']),
        ({"workload": {"trainer": "a:b", "name": "mlp"}}, ['workload: a table with one of name (mlp, vision, text, causal_lm), factory, trainer, lightning, script (received {trainer = "a:b", name = "mlp"})']),
        ({"workload": {"lightning": "model.py"}}, ['workload.lightning: text such as "package.module:function" (received "model.py")']),
        ({"workload": {"lightning": "a:b", "input": "synthetic"}}, ['workload.input: "real" (received "synthetic")']),
        ({"workload": {"factory": "model.py"}}, ['workload.factory: text such as "package.module:function" (received "model.py")']),
        ({"workload": {"factory": 3}}, ['workload.factory: text such as "package.module:function" (received 3)']),
        ({"workload": {"factory": "a:b", "input": "fake"}}, ['workload.input: "synthetic" or "real" (received "fake")']),
    ],
)  # fmt: skip
def test_a_wrong_value_is_answered_with_field_rule_and_value(tables, lines):
    assert refused(**tables) == lines


def test_every_fault_has_its_line():
    lines = refused(knobs={"batch_size": 0, "precison": "fp32"}, search={"trials": 0}, trainig={})
    assert [line.split(":")[0] for line in lines] == [
        "knobs.batch_size",
        "knobs.precison",
        "search.trials",
        "trainig",
    ]


def test_name_and_workload_must_be_given():
    assert problems(resolve, {}) == ["name: must be given", "workload: must be given"]


def test_strong_batches_divide():
    scaling = {"mode": "strong", "world_sizes": [1, 3]}
    (line,) = refused(scaling=scaling, knobs={"batch_size": 32})
    assert line.startswith("knobs.batch_size: under strong scaling the global batch must be divisible by")
    assert line.endswith("= 3 x 1 (received 32)")


def test_faults_of_every_kind_stand_together():
    lines = refused(knobs={"strategy": ["fsdp", "tp"], "batch_size": 0})
    assert 'knobs.strategy[1]: "single", "dp", "ddp" or "fsdp" (received "tp")' in lines
    assert 'knobs.batch_size: a whole number above 0 or "max" (received 0)' in lines


@pytest.mark.parametrize(
    "name", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES"]
)
def test_variables_of_ray_train_are_refused(name):
    (line,) = refused(environment={name: ["1"]})
    assert line.startswith(f"environment.{name}: not a study's to set: ")


def test_variables_are_text_however_they_are_written():
    study = resolve({**MLP, "environment": {"A": [1, 2.5, True, "x"], "B": False}})
    assert study.environment == {"A": ("1", "2.5", "true", "x"), "B": ("false",)}


# --- TOML that loads back


def test_a_study_written_loads_back_equal(tmp_path):
    every = {
        "name": "all-of.it_1",
        "workload": {
            "factory": "my.model:build",
            "text": 'a "quoted" \\ line\nand é \t \x01',
            "nested": {"a b": [1, {"c": 2.5}], "d": True},
            "big": 2**53 + 1,
            "tiny": 1e-300,
            "one": 1.0,
        },
        "scaling": {"mode": "strong", "world_sizes": [1, 2, 4], "placement": ["pack", [0, 2]]},
        "knobs": {
            "batch_size": [64, 128],
            "bucket_cap_mb": [0.5, 25, "default"],
            "static_graph": [True, False],
        },
        "environment": {"NCCL_ALGO": ["Ring", "Tree"], "OMP_PROC_BIND": "false"},
        "search": {"method": "optuna", "objectives": ["throughput", "peak_memory"]},
        "measure": {"half_width": 0.01, "steps": 5},
        "cost": {"price_per_device_hour": 1.5},
        "time_budget_seconds": 600,
        "data": "/a b/c",
        "code_folder": "/a b",
    }
    shipped = [
        load_study(path, device=device, smoke=smoke)
        for path in studies().values()
        for device in ("cpu", "cuda")
        for smoke in (False, True)
    ]
    for index, study in enumerate([resolve(MLP), resolve(every), *shipped]):
        path = tmp_path / f"{index}.toml"
        path.write_text(to_toml(study), encoding="utf-8")
        again = load_study(path)
        assert again == study
        assert again.model_dump_json() == study.model_dump_json()
        assert to_toml(again) == to_toml(study)


def test_unapplied_tables_are_written_too():
    study = Study(**MLP, smoke={"knobs.batch_size": [1]})
    assert '[smoke]\n"knobs.batch_size" = [1]' in to_toml(study)


# --- places


def test_a_path_in_another_directory_is_taken_from_there(tmp_path, monkeypatch):
    (tmp_path / "s.toml").write_text(LAYERED)
    monkeypatch.chdir(tmp_path)
    assert load_study(find_study("s.toml")).name == "x"
    assert find_study("s.toml") == Path("s.toml")


def test_a_script_s_ddp_takes_the_knobs_that_the_study_names_at_their_defaults_too():
    knobs = {"bucket_cap_mb": [1], "find_unused_parameters": [False]}
    study = resolve({"name": "mine", "workload": {"script": "train.py"}, "knobs": knobs})
    assert set(study.workload.ddp_knobs) == set(knobs)


def test_a_script_has_an_optimizer_of_its_own():
    script = {"script": "train.py", "args": "--bs {batch_size}"}
    study = resolve({"name": "mine", "workload": script})
    assert resolve(study.model_dump()) == study
    with pytest.raises(RequestError, match=r"^optimizer: a script has its own"):
        resolve({"name": "mine", "workload": script, "optimizer": {"name": "adam"}})


@pytest.mark.parametrize("more", [{"knobs": {"batch_size": [8, 16]}}, {"scaling": {"mode": "strong"}}])
def test_samples_of_a_step_are_typed_of_one_batch_on_any_number_of_devices(more):
    script = {"script": "train.py", "args": "--bs {batch_size}", "samples_per_step": 8}
    resolve({"name": "mine", "workload": script})
    with pytest.raises(RequestError, match=r"^workload\.samples_per_step: of one batch"):
        resolve({"name": "mine", "workload": script, **more})
