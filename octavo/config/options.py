"""Every option of the text server, its default and its words: the only home of a default."""

from dataclasses import dataclass

from octavo.config.fields import any_text, integer, number, option, size_bytes, switch, text

MAX_BLOCK_SIZE = 4096  # a request takes whole blocks: larger ones only waste
MAX_POOL_TOKENS = 2**31 - 1  # slots are numbered by 32 bits
DEFAULT_MODEL = "smollm2"
SCHEDULING_POLICIES = ("fcfs", "priority", "lpm")
BACKENDS = ("auto", "reference", "native")
DEVICES = ("auto", "cpu", "cuda")
KV_CACHE_DTYPES = ("auto", "float32", "float16", "bfloat16", "fp8", "int8")


@dataclass(frozen=True)
class ModelOptions:
    """Model"""

    model: str = option(
        DEFAULT_MODEL,
        "--model",
        doc="A model folder, a .gguf file, a hub id as org/name or org/name:Q4_K_M (fetched once), "
        "or the quick-start name smollm2. The same as the argument MODEL.",
        convert=text,
    )
    tokenizer_config: str | None = option(
        None,
        "--tokenizer-config",
        doc="File with the chat template and the special tokens; "
        "for a .gguf file only its chat template is read.",
        convert=text,
        metavar="PATH",
        default_text="tokenizer_config.json of the model",
    )
    served_model_name: str | None = option(
        None,
        "--served-model-name",
        doc="The model's name in requests and answers.",
        convert=text,
        metavar="NAME",
        default_text="the last part of the model's path",
    )
    max_model_len: int = option(
        0,
        "--max-model-len",
        doc="Tokens of prompt and answer together. 0: the model's own limit, "
        "lowered to what the KV cache holds.",
        convert=integer(0),
        metavar="N",
    )
    backend: str = option(
        "auto",
        "--backend",
        doc="What runs the model: native (C++, which auto takes) or reference (NumPy, slow, the "
        "definition of right).",
        convert=text,
        metavar="NAME",
        allowed=BACKENDS,
    )
    threads: int = option(
        0,
        "--threads",
        doc="Threads of the native backend. 0: one for each core that the process may use.",
        convert=integer(0, 1024),
        metavar="N",
    )
    device: str = option(
        "auto",
        "--device",
        doc="Where it runs. A named device that is missing ends the start.",
        convert=text,
        metavar="NAME",
        allowed=DEVICES,
    )
    enable_thinking: bool = switch(
        False,
        "--enable-thinking",
        off=("--no-enable-thinking",),
        doc="The chat template's variable enable_thinking.",
    )
    trust_remote_code: bool = switch(
        False,
        "--trust-remote-code",
        doc="Accepted, changes nothing.",
        no_effect="no code of a model is ever run",
    )


@dataclass(frozen=True)
class CacheOptions:
    """KV cache"""

    block_size: int = option(
        32,
        "--block-size",
        doc=f"Tokens in a block of the KV cache, a multiple of 16, up to {MAX_BLOCK_SIZE}.",
        convert=integer(1, MAX_BLOCK_SIZE),
        metavar="N",
    )
    num_blocks: int = option(
        0,
        "--num-blocks",
        doc="Blocks of the KV cache. 0: as many as fit in --kv-cache-memory, "
        "never less than one full model length.",
        convert=integer(0, MAX_POOL_TOKENS),
        metavar="N",
    )
    kv_cache_memory: int = option(
        0,
        "--kv-cache-memory",
        doc="Bytes for the KV cache, as 1073741824, 512M or 2G; --num-blocks wins over it. "
        "0: a share of the free memory.",
        convert=size_bytes,
        metavar="BYTES",
    )
    kv_cache_dtype: str = option(
        "auto",
        "--kv-cache-dtype",
        doc="Type of the numbers in the KV cache.",
        convert=text,
        metavar="TYPE",
        allowed=KV_CACHE_DTYPES,
    )
    enable_prefix_caching: bool | None = switch(
        None,
        "--enable-prefix-caching",
        "--enable-radix-attention",
        off=("--no-enable-prefix-caching", "--disable-radix-attention"),
        doc="Reuse the KV cache of equal prompt beginnings.",
        family="prefix caching",
        default_text="on",
    )
    prefix_caching_hash_seed: str | None = option(
        None,
        doc="Seed of the block hashes; random: a new one each start. "
        "Without it PYTHONHASHSEED is the seed, else a fixed one.",
        convert=any_text,
        env="VLLM_PREFIX_CACHING_HASH_SEED",
        secret=True,
    )
    gpu_memory_utilization: float = option(
        0.92,
        "--gpu-memory-utilization",
        doc="Accepted, sizes nothing.",
        convert=number(0, 1),
        metavar="SHARE",
        no_effect="the cache is sized by --kv-cache-memory or --num-blocks",
    )

    @property
    def prefix_caching(self) -> bool:
        """The tri-state resolved: on unless switched off."""
        return self.enable_prefix_caching is not False


@dataclass(frozen=True)
class SchedulerOptions:
    """Scheduler"""

    max_num_seqs: int = option(
        32, "--max-num-seqs", doc="Sequences that run at once.", convert=integer(1), metavar="N"
    )
    max_num_batched_tokens: int = option(
        0,
        "--max-num-batched-tokens",
        doc="Tokens of one model step. 0: up to 2048, as many as take about a quarter of a second.",
        convert=integer(0),
        metavar="N",
    )
    policy: str = option(
        "fcfs",
        "--scheduling-policy",
        "--schedule-policy",
        doc="Which waiting request runs next.",
        convert=text,
        metavar="POLICY",
        allowed=SCHEDULING_POLICIES,
    )
    max_queue: int = option(
        0,
        "--max-queue",
        doc="Requests that may wait before new ones get 429. 0: no limit.",
        convert=integer(0),
        metavar="N",
    )
    enable_jump_forward: bool | None = switch(
        None,
        "--enable-jump-forward",
        off=("--disable-jump-forward",),
        doc="Skip the model where a grammar leaves one token.",
        family="jump-forward",
        env="VT_ENABLE_JUMP_FORWARD",
        env_wins=True,
        default_text="off",
    )


@dataclass(frozen=True)
class ParserOptions:
    """Tool calls and reasoning"""

    tool_call_parser: str = option(
        "auto",
        "--tool-call-parser",
        doc="Dialect of tool calls: a name, auto (by the chat template) or none.",
        convert=text,
        metavar="NAME",
    )
    reasoning_parser: str = option(
        "auto",
        "--reasoning-parser",
        doc="Dialect of reasoning: a name, auto (by the chat template) or none.",
        convert=text,
        metavar="NAME",
    )
    enable_auto_tool_choice: bool = switch(
        False,
        "--enable-auto-tool-choice",
        doc="Accepted, changes nothing; refused together with --tool-call-parser none.",
        no_effect="tool choice auto is always available when a tool parser is on",
    )


@dataclass(frozen=True)
class ServerOptions:
    """HTTP server"""

    host: str = option(
        "0.0.0.0", "--host", doc="Address to listen on.", convert=text, metavar="ADDRESS"
    )
    port: int = option(
        8000,
        "--port",
        doc="Port to listen on. 0: any free one.",
        convert=integer(0, 65535),
        metavar="N",
    )
    api_key: tuple[str, ...] = option(
        (),
        "--api-key",
        doc="A key that requests must send as a bearer token; may be given several times.",
        convert=text,
        metavar="KEY",
        repeats=True,
        secret=True,
    )
    root_path: str = option(
        "",
        "--root-path",
        doc="Path under which a proxy serves this server, as /octavo.",
        convert=any_text,
        metavar="PATH",
    )
    max_body_bytes: int = option(
        8 * 2**20,
        "--max-body-bytes",
        doc="Largest request body; a larger one gets 413.",
        convert=size_bytes,
        metavar="BYTES",
        default_text="8M",
    )
    max_logprobs: int = option(
        20,
        "--max-logprobs",
        doc="Alternatives per token that a request may ask for.",
        convert=integer(0),
        metavar="N",
    )
    drain_timeout_s: float = option(
        5.0,
        "--drain-timeout",
        doc="Seconds that running requests get to finish after SIGTERM or SIGINT.",
        convert=number(0),
        metavar="SECONDS",
    )
    enable_force_include_usage: bool = switch(
        False, "--enable-force-include-usage", doc="Every stream ends with a usage frame."
    )
    enable_tokenizer_info_endpoint: bool = switch(
        False, "--enable-tokenizer-info-endpoint", doc="GET /tokenizer_info."
    )
    enable_server_dev_mode: bool = switch(
        False,
        "--enable-server-dev-mode",
        doc="POST /abort_requests and other routes for developers.",
        env="VLLM_SERVER_DEV_MODE",
    )
    enable_metrics: bool = switch(
        True, "--enable-metrics", off=("--disable-metrics",), doc="GET /metrics."
    )
    sse_ping_s: float = option(
        15.0,
        doc="Seconds of silence after which a stream gets a comment line. 0: never.",
        convert=number(0),
        env="VT_SERVER_SSE_PING_S",
    )
    max_new_tokens: int = option(
        0,
        doc="Ceiling of max_tokens over all requests. 0: none.",
        convert=integer(0),
        env="VT_SERVER_MAX_NEW_TOKENS",
    )
    max_prompt_chars: int = option(
        0,
        doc="Longest prompt in characters. 0: by the model's length alone.",
        convert=integer(0),
        env="VT_SERVER_MAX_PROMPT_CHARS",
    )
    max_completion_prompts: int = option(
        1024,
        doc="Prompts that one completion request may hold. 0: no limit.",
        convert=integer(0),
        env="VLLM_MAX_COMPLETION_PROMPTS",
    )


@dataclass(frozen=True)
class LogOptions:
    """Log"""

    enable_log_requests: bool = switch(
        True,
        "--enable-log-requests",
        off=("--disable-log-requests",),
        doc="One line per request, without its text.",
    )
    enable_log_outputs: bool = switch(False, "--enable-log-outputs", doc="Log the answers too.")
    max_log_len: int = option(
        256,
        "--max-log-len",
        doc="Characters after which logged text is cut.",
        convert=integer(0),
        metavar="N",
    )
    verbose: bool = switch(False, "--verbose", "-v", doc="Log at level debug.")
