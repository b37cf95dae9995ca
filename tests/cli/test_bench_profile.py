"""`octavo bench profile`: its tables, figures with both backends, exit codes, what is refused."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from octavo.backends.base import OpTime
from octavo.backends.native import NativeBackend
from octavo.cli.bench.operations import figures_of
from octavo.cli.bench.workload import Sizes, Workload, make_workloads
from octavo.cli.main import main
from octavo.models.registry import build
from octavo.testing.drive import Driver
from octavo.testing.tiny import tiny_llama
from octavo.weights.checkpoint import open_checkpoint

LAYERS = 3
SMALL = ["--prompt-tokens", "20", "--decode-tokens", "3", "--concurrency", "2", "--repeat", "2"]
# Every kind of operation in a tiny Llama -> how often a step runs it.
CALLS = {
    "embed embed_tokens": 1,
    "rms_norm input_layernorm": LAYERS,
    "linear q_proj": LAYERS,
    "linear k_proj": LAYERS,
    "linear v_proj": LAYERS,
    "rope": 2 * LAYERS,
    "attention": LAYERS,
    "linear o_proj": LAYERS,
    "add": 2 * LAYERS,
    "rms_norm post_attention_layernorm": LAYERS,
    "linear gate_proj": LAYERS,
    "linear up_proj": LAYERS,
    "silu_mul": LAYERS,
    "linear down_proj": LAYERS,
    "rms_norm norm": 1,
    "gather": 1,
    "logits lm_head": 1,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return tiny_llama(path, format="gguf", weight_type="Q8_0", layers=LAYERS)


def bench_profile(*argv):
    return main(["bench", "profile", *map(str, argv)])


def profile(capsys, *argv):
    assert bench_profile(*argv, *SMALL, "--json", "-") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_every_operation_has_its_time(model, capsys, backend):
    found = profile(capsys, model, "--backend", backend, "--threads", "1")
    assert (found["backend"], found["threads"], found["model"]) == (backend, 1, "tiny.gguf")
    prefill, decode = found["workloads"]
    assert (prefill["name"], prefill["steps"], prefill["tokens_per_step"]) == ("prefill", 1, 40)
    assert (decode["name"], decode["steps"], decode["tokens_per_step"]) == ("decode", 3, 2)
    for workload in (prefill, decode):
        operations = workload["operations"]
        assert {one["operation"]: one["calls"] for one in operations} == CALLS
        assert all(one["ms"] > 0 for one in operations)
        assert workload["operations_ms"] == pytest.approx(sum(one["ms"] for one in operations))
        assert sum(one["share"] for one in operations) == pytest.approx(1)
        assert workload["step_ms"] > 0
        assert workload["profiled_step_ms"] > 0


@pytest.mark.parametrize(
    ("backend", "bytes_per_block"), [("native", 34), ("reference", 4 * 32)], ids=str
)
def test_rates_are_of_the_matrices(model, capsys, backend, bytes_per_block):
    prefill, decode = profile(capsys, model, "--backend", backend)["workloads"]
    for workload, tokens in ((prefill, 40), (decode, 2)):
        by_name = {one["operation"]: one for one in workload["operations"]}
        down = by_name["linear down_proj"]  # [64, 128] in each layer
        assert down["weight_bytes"] == LAYERS * 64 * 128 // 32 * bytes_per_block
        assert down["multiply_adds"] == LAYERS * tokens * 64 * 128
        assert down["gb_per_s"] == pytest.approx(down["weight_bytes"] / down["ms"] / 1e6)
        assert down["gmac_per_s"] == pytest.approx(down["multiply_adds"] / down["ms"] / 1e6)
        head = by_name["logits lm_head"]
        assert head["multiply_adds"] == head["weight_bytes"] // bytes_per_block * 32 * 2  # two rows
        assert by_name["attention"]["weight_bytes"] is None
        assert by_name["rms_norm norm"]["gmac_per_s"] is None


def test_the_tables(model, tmp_path, capsys):
    file = tmp_path / "profile.json"
    flags = ["--backend", "native", "--kv-cache-dtype", "bfloat16", "--block-size", "16"]
    assert bench_profile(model, *flags, *SMALL, "--json", file) == 0
    out, err = capsys.readouterr()
    assert not err
    found = json.loads(file.read_text())
    assert (found["kv_cache_dtype"], found["block_size"]) == ("bfloat16", 16)
    assert out.startswith("tiny.gguf on the native backend, --threads 0, --kv-cache-dtype bfloat16")
    assert "prefill: 2 x 20 tokens a step, steps: 1\n" in out
    assert "decode: 2 x 1 tokens a step, steps: 3\n" in out
    lines = out.splitlines()
    for kind in CALLS:
        assert sum(line.startswith(kind + "  ") for line in lines) == 2, kind
    for workload in found["workloads"]:
        for words, name in (
            ("operations", "operations_ms"),
            ("step, profiled", "profiled_step_ms"),
            ("step, not profiled", "step_ms"),
        ):
            wanted = f"{words:33} {workload[name]:.3f}".split()
            assert any(line.split() == wanted for line in lines), (words, workload["name"])


def test_a_tied_head_and_a_folder(tmp_path, capsys):
    folder = tiny_llama(tmp_path / "tied", tie=True, layers=1)
    [_, decode] = profile(capsys, folder, "--backend", "native")["workloads"]
    assert "logits embed_tokens" in {one["operation"] for one in decode["operations"]}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--repeat", "0"], "--repeat must be 1 or more, not 0"),
        (["--concurrency", "-1"], "--concurrency must be 1 or more, not -1"),
        (["--prompt-tokens", "many"], "--prompt-tokens must be a whole number 1 or more"),
        (["--decode-tokens", "0"], "--decode-tokens must be 1 or more"),
        (["--threads", "1.5"], "--threads must be a whole number from 0 to 1024"),
        (["--json"], "--json needs a value"),
        (["--port", "80"], "unknown flag --port"),
        (["other"], "2 were given"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_usage(model, capsys, flags, words):
    assert bench_profile(model, *flags) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("usage: octavo bench profile ")
    assert words in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--backend", "fast"], "--backend: unknown value 'fast'; allowed: auto,"),
        (["--kv-cache-dtype", "int8"], "--kv-cache-dtype int8 is not built"),
        (["--block-size", "17"], "--block-size must be a multiple of 16"),
        (["--prompt-tokens", "2000"], "make 2064 tokens, but the model's length is 2048"),
        (["--concurrency", "999999999"], "lower --concurrency"),
        (["--json", "no/such/folder/x.json"], "--json no/such/folder/x.json: there is no such"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_values_that_cannot_be(model, capsys, flags, words):
    assert bench_profile(model, *flags) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("bench: fatal: ")
    assert err.count("\n") == 1
    assert words in err


def test_no_model(tmp_path, capsys):
    assert bench_profile(tmp_path / "absent.gguf") == 1
    assert capsys.readouterr().err.startswith("bench: fatal: ")


def test_figures_that_cannot_be_written(model, tmp_path, capsys):
    assert bench_profile(model, *SMALL, "--json", tmp_path) == 1
    out, err = capsys.readouterr()
    assert "step, not profiled" in out  # what was measured is not lost
    assert "cannot be written: Is a directory" in err


@pytest.mark.parametrize(
    ("argv", "words"), [([], "a command is needed: profile"), (["x"], "unknown command x; known:")]
)
def test_bench_needs_a_command(capsys, argv, words):
    assert main(["bench", *argv]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("usage: octavo bench COMMAND")
    assert words in err.splitlines()[-1]


def test_help(capsys):
    assert main(["bench", "--help"]) == 0
    assert "  profile  " in capsys.readouterr().out
    assert main(["bench", "profile", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--decode-tokens N" in out
    assert "(see docs/flags.md): OCTAVO_CACHE." in out


def test_help_needs_nothing_heavy():
    heavy = "numpy pydantic tokenizers jinja2 rich octavo.serving octavo.backends"
    code = (
        "import sys; from octavo.cli.main import main; main(['bench', 'profile', '--help']);"
        f"sys.exit(' '.join(m for m in '{heavy}'.split() if m in sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stderr.strip() == ""


def workloads(sizes, block_size=16):
    return make_workloads(sizes, groups=1, block_size=block_size, vocab_size=200)


def test_the_steps_are_those_of_sequences_that_go_on(model):
    """The same tokens, put into batches by the testing driver, give the same draws."""
    sizes = Sizes(sequences=3, prompt_tokens=18, decode_tokens=4)
    with open_checkpoint(model) as checkpoint:
        built = build(checkpoint)
        ours, theirs = (NativeBackend(built.program, checkpoint, vocab_size=200) for _ in range(2))
    ours.allocate_cache(sizes.num_blocks(16), 16)
    driver = Driver(theirs)
    prefill, decode = workloads(sizes)
    for batch in (*prefill.steps, *decode.steps):
        tokens = batch.token_ids.reshape(3, -1)
        expected = driver.step({str(s): tokens[s].tolist() for s in range(3)})
        assert ours.start(batch).finish().token_ids.tolist() == expected.token_ids.tolist()


def test_figures_are_medians_of_repeats_and_strange_operations_are_kept(model):
    with open_checkpoint(model) as checkpoint:
        program = build(checkpoint).program
    program = replace(program, ops=program.ops[-1:])
    name = program.ops[0].weights[0]
    _, decode = workloads(Sizes(1, 8, 2))
    repeats = [
        [OpTime("logits", name, 0.0, seconds), OpTime("logits", name, 1.0, seconds)]
        for seconds in (1.0, 3.0, 50.0)
    ]
    repeats[0].append(OpTime("sampler", "", 2.0, 8.0))
    repeats[2].append(OpTime("sampler", "", 2.0, 6.0))
    head, sampler = figures_of(program, Workload("decode", decode.steps), repeats, {name: 64})
    assert (str(head.kind), head.calls, head.seconds, head.weight_bytes) == (
        "logits lm_head",
        1,
        3.0,
        64,
    )
    assert (str(sampler.kind), sampler.seconds, sampler.macs) == ("sampler", 3.0, None)
