"""The offline API: batches, parameters by the rules of HTTP, streams, errors, and its end."""

import asyncio
import gc
import signal
import threading
from functools import partial
from pathlib import Path

import msgspec
import pytest

import octavo
from octavo import LLM, SamplingParams
from octavo.api.schemas.chat import ChatBody
from octavo.api.schemas.common import SamplingBody
from octavo.config import config_from_keywords
from octavo.errors import (
    ConfigError,
    ContextTooLong,
    EngineFailure,
    InvalidRequest,
    NotBuilt,
    Unavailable,
)
from octavo.serving.llm import ChatOptions
from octavo.serving.offline_params import NAMES, request_fields
from octavo.serving.params import NOT_BUILT
from octavo.testing.scripted.load import load_scripted
from octavo.testing.scripted.script import Script
from octavo.testing.tiny import tiny_llama

HELLO = {"pieces": ["Hel", "lo", " world"]}
ENDLESS = {"pieces": ["tick "], "end": False}
USER = [{"role": "user", "content": "hi"}]


def script(*replies, **further):
    return msgspec.convert({"replies": list(replies)} | further, Script)


@pytest.fixture
def scripted():
    """scripted(reply, ..., option=...): an LLM around the double."""
    made = []

    def make(*replies, options=None, **further):
        load = partial(load_scripted, script=script(*(replies or [HELLO]), **further))
        made.append(LLM("scripted", load=load, **(options or {})))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


def test_what_went_wrong_with_the_weights_is_told_at_once():
    def load(config):
        served = load_scripted(config, script(HELLO))

        def wait_loaded():
            raise MemoryError("the weights do not fit")

        served.backend.wait_loaded = wait_loaded
        return served

    with pytest.raises(MemoryError, match="do not fit"):
        LLM("scripted", load=load)


def wait_until_idle(llm):
    engine = llm._context.engine
    for _ in range(2000):
        stats = engine.stats()
        if not (stats.running or stats.waiting or engine.num_open):
            return
        threading.Event().wait(0.005)
    raise AssertionError(f"not idle: {stats}")


# ---------------------------------------------------------------------------------- answers


def test_one_answer_in_full(scripted):
    [answer] = scripted().generate("ab", {"max_tokens": 10, "logprobs": 1, "prompt_logprobs": 0})
    assert answer.text == "Hello world"
    assert answer.prompt == "ab"
    assert answer.prompt_token_ids == (97, 98)
    assert answer.token_ids == (256, 257, 258, 259)
    assert (answer.finish_reason, answer.stop_reason) == ("stop", None)
    assert answer.usage == (2, 4, 0)
    assert [entry.text for entry in answer.logprobs] == ["Hel", "lo", " world"]
    assert [[score.text for score in row] if row else row for row in answer.prompt_logprobs] == [
        None,
        ["b"],
    ]


def test_what_was_not_asked_for_is_not_there(scripted):
    [answer] = scripted().generate("ab")
    assert answer.logprobs is None
    assert answer.prompt_logprobs is None


def test_answers_stand_in_the_order_of_the_prompts(scripted):
    replies = [{"pieces": [f"reply {i}"], "when": f"prompt {i}"} for i in range(5)]
    llm = scripted(*replies)
    prompts = [f"prompt {i}" for i in (3, 1, 4, 0, 2)]
    assert [a.text for a in llm.generate(prompts)] == [
        p.replace("prompt", "reply") for p in prompts
    ]


def test_all_prompts_run_as_one_batch(scripted):
    llm = scripted({"pieces": ["a"] * 50})
    answers = llm.generate(["x"] * 8, {"max_tokens": -1})
    assert [len(answer.token_ids) for answer in answers] == [51] * 8
    assert llm._context.served.backend._num_steps < 4 * 51  # one after the other: 8 * 51


@pytest.mark.parametrize(
    ("prompts", "read"),
    [
        ("ab", [(97, 98)]),
        ([1, 2], [(1, 2)]),
        (["a", [1, 2], (3,)], [(97,), (1, 2), (3,)]),
    ],
)
def test_forms_of_prompts(scripted, prompts, read):
    assert [answer.prompt_token_ids for answer in scripted().generate(prompts)] == read


def test_parameters_for_each_prompt(scripted):
    llm = scripted()
    answers = llm.generate(["a", "b"], [SamplingParams(max_tokens=1), {"max_tokens": 2}])
    assert [answer.text for answer in answers] == ["Hel", "Hello"]
    with pytest.raises(InvalidRequest, match="list of 1 for 2 prompts"):
        llm.generate(["a", "b"], [{}])


def test_choices(scripted):
    [answer] = scripted().generate("a", {"n": 3, "max_tokens": 2, "stop": "lo"})
    assert [choice.text for choice in answer.choices] == ["Hel"] * 3
    assert {choice.stop_reason for choice in answer.choices} == {"lo"}
    assert answer.usage.completion_tokens == 6


def test_chat(scripted):
    llm = scripted(HELLO, chat_template="{{ messages[0]['content'] }}{{ extra }}|{{ tools }}")
    [one] = llm.chat(USER, {"logprobs": 2}, chat_template_kwargs={"extra": "!"})
    assert (one.text, len(one.logprobs[0].top)) == ("Hello world", 2)
    assert bytes(one.prompt_token_ids) == b"hi!|None"
    tool = {"type": "function", "function": {"name": "f"}}
    several = llm.chat([USER, USER], tools=[tool])
    assert [answer.text for answer in several] == ["Hello world"] * 2
    assert b"'name': 'f'" in bytes(several[0].prompt_token_ids)


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_a_real_model(tmp_path: Path, form):
    path = tiny_llama(tmp_path / "tiny.gguf", format=form)
    with LLM(path, max_model_len=64, enable_prefix_caching=False, served_model_name="tiny") as llm:
        assert (llm.model, llm.max_model_len) == ("tiny", 64)
        params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
        [answer] = llm.generate("the ring", params)
        assert (len(answer.token_ids), answer.finish_reason) == (5, "length")
        deltas = list(llm.stream("the ring", params))
        assert "".join(delta.text for delta in deltas) == answer.text
        assert tuple(i for delta in deltas for i in delta.token_ids) == answer.token_ids
        [said] = llm.chat(USER, params)
        assert said.usage.prompt_tokens == len(said.prompt_token_ids)


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"max_tokens": "x"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"stop": ["a", 1]}, "stop.1"),
        ({"stop": ""}, "stop"),
        ({"logit_bias": {1: float("nan")}}, "logit_bias"),
        ({"logit_bias": {9999: 1}}, "logit_bias"),
        ({"logprobs": 21}, "logprobs"),
        ({"truncation_side": "up"}, "truncation_side"),
        ({"guided_json": {}}, "guided_json"),
        ({"maxtokens": 5}, "maxtokens"),
        ({"n": 2, "temperature": 0}, "n"),
    ],
)
def test_wrong_parameters_name_their_field(scripted, given, param):
    llm = scripted()
    for ask in (partial(llm.generate, "a"), partial(llm.chat, USER)):
        with pytest.raises(InvalidRequest) as caught:
            ask(given)
        assert caught.value.param == param


@pytest.mark.parametrize("given", [5, "max_tokens", [1]])
def test_parameters_of_a_wrong_kind(scripted, given):
    with pytest.raises(InvalidRequest, match="params must be"):
        scripted().generate("a", given)


@pytest.mark.parametrize(
    ("prompts", "param"),
    [
        ([], "prompts"),
        (5, "prompts"),
        (["a", []], "prompts.1"),
        (["a", 1], "prompts.1"),
        ([[1, True]], "prompts.0"),
        ("", "prompt"),
        ([9999], "prompt"),
    ],
)
def test_wrong_prompts(scripted, prompts, param):
    with pytest.raises(InvalidRequest) as caught:
        scripted().generate(prompts)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hi", "messages"),
        ([[]], "messages.0"),
        ([{}], "messages.0"),
        ([{"role": 1}], "messages.0.role"),
        ([USER[0], "x"], "messages.1"),
        ([{"role": "user"}], "messages.0.content"),
        ([USER, [{"role": ""}]], "messages.1.0.role"),
        ([{"role": "assistant", "content": "", "tool_calls": [1]}], "messages.0.tool_calls.0"),
    ],
)
def test_wrong_messages(scripted, messages, param):
    with pytest.raises(InvalidRequest) as caught:
        scripted().chat(messages)
    assert caught.value.param == param


def test_wrong_tools(scripted):
    with pytest.raises(InvalidRequest) as caught:
        scripted().chat(USER, tools=[{"type": "function", "function": {}}])
    assert caught.value.param == "tools.0.function"


def test_an_error_says_which_prompt_it_is_and_nothing_runs(scripted):
    llm = scripted(max_model_len=32)
    with pytest.raises(ContextTooLong) as caught:
        llm.generate(["a", "b" * 40])
    assert "number 1 of the batch" in caught.value.__notes__[0]
    assert llm._context.served.backend._num_steps == 0


def test_the_fields_are_those_of_http():
    only_http = {
        *("model", "stream", "stream_options", "stream_interval", "request_id", "user"),
        *("return_tokens_as_token_ids", "return_token_ids", "cache_salt", "best_of"),
        *("length_penalty", "spaces_between_special_tokens"),
    }
    known = set(SamplingBody.model_fields) | {"logprobs"}
    assert set(NAMES) == known - only_http - set(NOT_BUILT)


def test_what_a_chat_is_given_beside_are_fields_of_http():
    assert set(ChatOptions.__annotations__) <= set(ChatBody.model_fields)
    assert request_fields(None).parallel_tool_calls is None


# ---------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_modellen": 5}, "max_modellen is no option here; known: model, "),
        ({"port": 80}, "port is no option here"),
        ({"max_queue": 1}, "max_queue is no option here"),
        ({"max_num_seqs": 0}, "max_num_seqs must be 1 or more, not 0"),
        ({"max_num_seqs": True}, "max_num_seqs must be a number, not True"),
        ({"max_model_len": 1.5}, "max_model_len must be a whole number"),
        ({"max_model_len": None}, "max_model_len must be a number, not None"),
        ({"served_model_name": 5}, "served_model_name must be text, not 5"),
        ({"enable_prefix_caching": 1}, "enable_prefix_caching must be True or False, not 1"),
        ({"backend": "gpu"}, "unknown value 'gpu'; allowed: auto"),
    ],
)
def test_wrong_options(options, words):
    with pytest.raises(ConfigError, match=words):
        LLM("absent", **options)


def test_a_feature_that_is_not_built_and_a_model_that_is_absent(tmp_path: Path):
    with pytest.raises(NotBuilt, match="cuda"):
        LLM("absent", device="cuda")
    with pytest.raises(ConfigError, match="absent"):
        LLM(tmp_path / "absent")


def test_options_and_variables_reach_the_configuration():
    environ = {"VLLM_PREFIX_CACHING_HASH_SEED": "s", "VT_SERVER_MAX_NEW_TOKENS": "1"}
    options = {"model": Path("a/b"), "kv_cache_memory": "1K", "enable_prefix_caching": None}
    config = config_from_keywords(options, environ)
    assert (config.model.model, config.cache.kv_cache_memory) == ("a/b", 1024)
    assert config.cache.prefix_caching_hash_seed == "s"
    assert config.server.max_new_tokens == 0  # the server's alone
    assert not config.warnings


def test_an_option_takes_effect(scripted):
    with pytest.raises(InvalidRequest, match="at most 2"):
        scripted(options={"max_logprobs": 2}).generate("a", {"logprobs": 3})


# ---------------------------------------------------------------------------------- streams


def test_a_stream_is_the_whole_answer_in_pieces(scripted):
    llm = scripted()
    deltas = list(llm.stream("a"))
    assert [delta.text for delta in deltas] == ["Hel", "lo", " world", ""]
    assert [delta.finish_reason for delta in deltas] == [None, None, None, "stop"]
    assert "".join(delta.text for delta in llm.stream_chat(USER)) == "Hello world"


def test_a_stream_can_be_ended_at_any_moment(scripted):
    llm = scripted(ENDLESS, step_delay_ms=1)
    with llm.stream("a", {"max_tokens": -1}) as stream:
        assert next(stream).text == "tick "
    assert len(list(stream)) < 3000
    wait_until_idle(llm)
    never_begun = llm.stream("a", {"max_tokens": -1})
    never_begun.close()
    never_begun.close()
    list(never_begun)
    wait_until_idle(llm)


def test_a_stream_has_one_choice_of_one_prompt(scripted):
    llm = scripted()
    with pytest.raises(InvalidRequest, match="n is 2"):
        llm.stream("a", {"n": 2})
    with pytest.raises(InvalidRequest, match="one prompt"):
        llm.stream(["a", "b"])
    with pytest.raises(InvalidRequest, match="one conversation"):
        llm.stream_chat([USER, USER])


def test_a_stream_outlives_the_last_name_of_its_llm(scripted):
    load = partial(load_scripted, script=script(HELLO))
    assert "".join(d.text for d in LLM("scripted", load=load).stream("a")) == "Hello world"


# ------------------------------------------------------------------------- failures and the end


def test_a_failed_step_is_an_error_and_the_next_batch_runs(scripted):
    llm = scripted(fail_at_step=2)
    with pytest.raises(EngineFailure):
        llm.generate(["a", "b"])
    wait_until_idle(llm)
    assert llm.generate("a")[0].text == "Hello world"
    llm = scripted(fail_at_step=2)
    with pytest.raises(EngineFailure):
        list(llm.stream("a"))


def test_a_dead_engine(scripted):
    llm = scripted(die_at_step=1)
    with pytest.raises(EngineFailure):
        llm.generate("a")
    with pytest.raises(Unavailable):
        llm.generate("a")


def test_inside_a_running_loop(scripted):
    async def ask():
        return scripted().generate("a")

    assert asyncio.run(ask())[0].text == "Hello world"


def test_several_threads_at_once(scripted):
    llm = scripted(*({"pieces": [name] * 3, "when": name} for name in "abcd"))
    texts = {}

    def ask(name):
        texts[name] = llm.generate(name)[0].text

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {name: name * 3 for name in "abcd"}


def test_an_interrupt_ends_what_runs(scripted):
    llm = scripted(ENDLESS, step_delay_ms=1)
    main = threading.get_ident()

    def interrupt():
        while not llm._context.engine.stats().running:
            threading.Event().wait(0.005)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        llm.generate("a", {"max_tokens": -1})
    thread.join()
    wait_until_idle(llm)
    assert llm.generate("a", {"max_tokens": 1})[0].text == "tick "


def our_threads():
    return [t for t in threading.enumerate() if t.name in ("octavo-llm", "octavo-engine")]


def test_after_the_end(scripted):
    before = len(our_threads())
    with scripted() as llm:
        assert len(our_threads()) == before + 2
    assert len(our_threads()) == before
    llm.close()
    for ask in (partial(llm.generate, "a"), partial(llm.stream, "a"), partial(llm.chat, USER)):
        with pytest.raises(Unavailable, match="closed"):
            ask()


def test_without_an_end_it_ends_with_its_last_name():
    before = len(our_threads())
    llm = LLM("scripted", load=partial(load_scripted, script=script(HELLO)))
    llm.generate("a")
    del llm
    gc.collect()
    assert len(our_threads()) == before


# ---------------------------------------------------------------------------------- the outside


def test_the_bar_is_on_stderr_only_where_it_is_wanted(scripted, capsys):
    llm = scripted()
    llm.generate(["a", "b"])
    llm.generate(["a", "b"], progress=False)
    assert capsys.readouterr() == ("", "")
    llm.generate(["a", "b"], progress="always")
    out, err = capsys.readouterr()
    assert not out
    assert "2/2" in err
    assert "8 tokens" in err


def test_names_of_the_package():
    assert octavo.LLM is LLM
    assert {"LLM", "SamplingParams", "Completion", "OctavoError"} <= set(dir(octavo))
    with pytest.raises(AttributeError, match="nothing"):
        octavo.nothing  # noqa: B018
