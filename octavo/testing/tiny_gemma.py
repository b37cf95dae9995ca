"""Writes tiny random Gemma 3 checkpoints, as `tiny.py` writes Llama's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from octavo.testing.tiny import TinyLlama, write_model
from octavo.weights.encodings import TensorType


@dataclass(frozen=True, kw_only=True)
class TinyGemma(TinyLlama):
    """The shape of a tiny model.

    window: tokens that a query sees in a sliding layer. period: every so many layers one sees all.
    query_scalar: scores are divided by its root; GGUF stores none, and means the width of a head.
    """

    layers: int = 3
    tie: bool = True
    head_dim: int | None = 24
    rope_theta: float = 1e6
    local_theta: float = 10000.0
    window: int = 9
    period: int = 3
    query_scalar: int = 24

    gguf: ClassVar[str] = "gemma3"
    norm_offset: ClassVar[float] = 1.0

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Hugging Face name -> shape of every weight."""
        shapes = super().shapes()
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."
            for name in ("self_attn.q_norm", "self_attn.k_norm"):
                shapes[f"{prefix}{name}.weight"] = (self.width,)
            for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
                shapes[f"{prefix}{name}.weight"] = (self.hidden,)
        return shapes

    def config(self, kind: TensorType) -> dict[str, Any]:
        """config.json of a folder whose matrices are of this type."""
        config = super().config(kind)
        del config["hidden_act"], config["mlp_bias"]
        return config | {
            "architectures": ["Gemma3ForCausalLM"],
            "model_type": "gemma3_text",
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": self.query_scalar,
            "rope_local_base_freq": self.local_theta,
            "sliding_window": self.window,
            "sliding_window_pattern": self.period,
        }

    def gguf_metadata(self) -> dict[str, Any]:
        """The pairs of a GGUF file."""
        llama = super().gguf_metadata()
        metadata = {key.replace("llama.", "gemma3.", 1): value for key, value in llama.items()}
        del metadata["gemma3.rope.dimension_count"]
        return metadata | {
            "general.architecture": "gemma3",
            "gemma3.attention.sliding_window": self.window,
            "gemma3.attention.sliding_window_pattern": self.period,
            "gemma3.rope.freq_base_swa": self.local_theta,
        }


def tiny_gemma(
    path: Path,
    *,
    format: Literal["folder", "gguf"] = "folder",  # noqa: A002 - the word for it
    weight_type: str = "F32",
    **shape: Any,
) -> Path:
    """Write the model `TinyGemma(**shape)` and return `path`; parameters as of `tiny_llama`."""
    return write_model(path, TinyGemma(**shape), format, weight_type)
