"""llama.cpp's logits of a GGUF model, through its C functions: inside the xllamacpp wheel, or those
of another build.

The wheel has no Python function for them, so two parameter structures are filled by offset: their
defaults are checked at those offsets first, and a release that moves them is refused.
"""

import ctypes
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

F32 = 0  # ggml's number of the type
CONTEXT_DEFAULTS = {  # offset -> default; llama_context_params
    "n_ctx": (0, 512),
    "n_batch": (4, 2048),
    "n_ubatch": (8, 512),
    "n_threads": (28, 4),
    "n_threads_batch": (32, 4),
    "type_k": (104, 1),
    "type_v": (108, 1),
}


class Params(ctypes.Structure):
    """A parameter structure, larger than any release's: passed last, so the excess is not read."""

    _fields_ = (("bytes", ctypes.c_uint8 * 512),)


class LlamaBatch(ctypes.Structure):
    """llama_batch."""

    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


class PeerModel:
    """A model in llama.cpp with an fp32 cache for one sequence of up to `context` tokens.

    library: a libllama.so; None: xllamacpp's. ModuleNotFoundError: xllamacpp is not installed.
    RuntimeError: llama.cpp refused, or this release has its parameters elsewhere.
    """

    def __init__(
        self,
        path: Path,
        *,
        vocab_size: int,
        context: int = 512,
        threads: int = 1,
        library: Path | None = None,
    ) -> None:
        self._lib = lib = _library(library or _library_of_wheel())
        self._vocab_size = vocab_size
        lib.llama_log_set(_no_log, None)
        self._model = lib.llama_model_load_from_file(
            str(path).encode(), lib.llama_model_default_params()
        )
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        params = lib.llama_context_default_params()
        fields = (ctypes.c_int32 * 128).from_buffer(params)
        for name, (offset, default) in CONTEXT_DEFAULTS.items():
            if fields[offset // 4] != default:
                raise RuntimeError(f"this release of llama.cpp has {name} elsewhere")
        wanted = {
            "n_ctx": context,
            "n_batch": context,
            "n_threads": threads,
            "n_threads_batch": threads,
            "type_k": F32,
            "type_v": F32,
        }
        for name, value in wanted.items():
            fields[CONTEXT_DEFAULTS[name][0] // 4] = value
        self._context = lib.llama_init_from_model(ctypes.c_void_p(self._model), params)
        if not self._context:
            raise RuntimeError("llama.cpp cannot make a context")

    def scores(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits after each token of a fresh sequence, [len(tokens), vocab_size]."""
        self._forget()
        return self._read(tokens, 0)

    def greedy(
        self, prompt: Sequence[int], count: int
    ) -> tuple[list[int], npt.NDArray[np.float32]]:
        """`count` times the most likely token, end tokens too, and its logits [count, vocab_size].

        Tokens after the prompt are read one by one, as a server does.
        """
        self._forget()
        rows = [self._read(prompt, 0)[-1]]
        tokens = [int(rows[0].argmax())]
        while len(tokens) < count:
            rows.append(self._read(tokens[-1:], len(prompt) + len(tokens) - 1)[-1])
            tokens.append(int(rows[-1].argmax()))
        return tokens, np.stack(rows)

    def _forget(self) -> None:
        memory = self._lib.llama_get_memory(self._context)
        self._lib.llama_memory_clear(ctypes.c_void_p(memory), True)

    def _read(self, tokens: Sequence[int], start: int) -> npt.NDArray[np.float32]:
        """Logits after each token, the first of which is at position `start`."""
        lib, count = self._lib, len(tokens)
        batch = lib.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = start + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1
        try:
            if lib.llama_decode(self._context, batch) != 0:
                raise RuntimeError("llama_decode failed")
            pointer = lib.llama_get_logits(self._context)
            return np.ctypeslib.as_array(pointer, (count, self._vocab_size)).copy()
        finally:
            lib.llama_batch_free(batch)

    def close(self) -> None:
        """Free the model."""
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(ctypes.c_void_p(self._model))


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def _no_log(_level: int, _text: bytes, _data: object) -> None:
    """Takes a line of llama.cpp's log."""


def _library_of_wheel() -> Path:
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pip install xllamacpp")
    (path,) = Path(spec.origin).parent.glob("xllamacpp*.so")
    return path


def _library(path: Path) -> ctypes.CDLL:
    lib = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    lib.llama_model_default_params.restype = Params
    lib.llama_context_default_params.restype = Params
    lib.llama_model_load_from_file.restype = pointer
    lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
    lib.llama_init_from_model.restype = pointer
    lib.llama_init_from_model.argtypes = [pointer, Params]
    lib.llama_get_memory.restype = pointer
    lib.llama_get_memory.argtypes = [pointer]
    lib.llama_memory_clear.argtypes = [pointer, ctypes.c_bool]
    lib.llama_batch_init.restype = LlamaBatch
    lib.llama_batch_free.argtypes = [LlamaBatch]
    lib.llama_decode.argtypes = [pointer, LlamaBatch]
    lib.llama_get_logits.argtypes = [pointer]
    lib.llama_get_logits.restype = ctypes.POINTER(ctypes.c_float)
    lib.llama_free.argtypes = [pointer]
    return lib
