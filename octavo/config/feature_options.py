"""Options of the features beside plain text: transfer, speculation, media, video, speech, trace."""

from dataclasses import dataclass

from octavo.config.fields import integer, option, switch, text

VIDEO_PARTITIONS = ("fl2va", "ref2va")


@dataclass(frozen=True)
class TransferOptions:
    """KV transfer and offload"""

    kv_transfer_config: str | None = option(
        None,
        "--kv-transfer-config",
        doc="External KV connector, a JSON object.",
        convert=text,
        metavar="JSON",
    )
    offload_config: str | None = option(
        None,
        "--offload-config",
        doc="Weight offload, a JSON object.",
        convert=text,
        metavar="JSON",
    )


@dataclass(frozen=True)
class SpeculativeOptions:
    """Speculative decoding"""

    speculative_config: str | None = option(
        None,
        "--speculative-config",
        doc="Speculative decoding, a JSON object.",
        convert=text,
        metavar="JSON",
    )


@dataclass(frozen=True)
class MediaOptions:
    """Pictures, sound and video in chats"""

    limit_mm_per_prompt: str | None = option(
        None,
        "--limit-mm-per-prompt",
        doc='Most items of each kind in one prompt, as {"image": 2, "video": 0}.',
        convert=text,
        metavar="JSON",
        default_text="999 each",
    )
    language_model_only: bool = switch(
        False, "--language-model-only", doc="Refuse pictures, sound and video in chats."
    )


@dataclass(frozen=True)
class VideoOptions:
    """Video generation"""

    video_dit: str | None = option(
        None,
        "--video-dit",
        doc="The video transformer (.gguf or safetensors); turns the /v1/videos routes on.",
        convert=text,
        metavar="PATH",
    )
    video_vae: str | None = option(
        None,
        "--video-vae",
        doc="Video VAE, safetensors; needed with --video-dit.",
        convert=text,
        metavar="PATH",
    )
    video_vae_config: str | None = option(
        None, "--video-vae-config", doc="JSON of the video VAE.", convert=text, metavar="PATH"
    )
    audio_vae: str | None = option(
        None,
        "--audio-vae",
        doc="Audio VAE, safetensors; needed with --video-dit.",
        convert=text,
        metavar="PATH",
    )
    audio_vae_config: str | None = option(
        None, "--audio-vae-config", doc="JSON of the audio VAE.", convert=text, metavar="PATH"
    )
    video_encoder: str | None = option(
        None,
        "--video-encoder",
        doc="GGUF of the text conditioner: makes the prompt steer the video.",
        convert=text,
        metavar="PATH",
    )
    video_tokenizer: str | None = option(
        None,
        "--video-tokenizer",
        doc="tokenizer.json of the conditioner.",
        convert=text,
        metavar="PATH",
        default_text="the vocabulary in the encoder's GGUF",
    )
    video_encoder_max_layers: int = option(
        50,
        "--video-encoder-max-layers",
        doc="Layers of the conditioner that are loaded.",
        convert=integer(1),
        metavar="N",
    )
    video_prompt_embeds: str | None = option(
        None,
        "--video-prompt-embeds",
        doc="Raw little-endian float32 rows of 5120, the conditioning when there is no encoder.",
        convert=text,
        metavar="PATH",
    )
    video_workdir: str = option(
        "/tmp/vllm_h3_videos",
        "--video-workdir",
        doc="Folder of the jobs' files.",
        convert=text,
        metavar="PATH",
    )
    video_ffmpeg: str = option(
        "ffmpeg", "--video-ffmpeg", doc="Muxer executable.", convert=text, metavar="PATH"
    )
    video_device: str = option(
        "cuda",
        "--video-device",
        doc="cuda, anything else means the CPU.",
        convert=text,
        metavar="NAME",
    )
    video_partition: str | None = option(
        None,
        "--video-partition",
        doc="Which partition the transformer is; unset: every task is refused.",
        convert=text,
        metavar="NAME",
        allowed=VIDEO_PARTITIONS,
    )
    video_keep_quant: bool = switch(
        False, "--video-keep-quant", doc="Keep GGUF blocks packed instead of decoding to bf16."
    )
    video_dequant_bf16: bool = switch(
        False, "--video-dequant-bf16", doc="Decode the transformer to bf16."
    )
    video_family: str | None = option(
        None,
        "--video-family",
        doc="Family of the video model.",
        convert=text,
        metavar="NAME",
        default_text="detected",
    )
    video_extra: tuple[str, ...] = option(
        (),
        "--video-extra",
        doc="A setting of the family, as KEY=VALUE; may be given several times.",
        convert=text,
        metavar="KEY=VALUE",
        repeats=True,
    )


@dataclass(frozen=True)
class SpeechOptions:
    """Speech"""

    speech_model: str | None = option(
        None,
        "--speech-model",
        doc="Model of /v1/audio/speech.",
        convert=text,
        metavar="PATH",
    )
    speech_device: str | None = option(
        None, "--speech-device", doc="Where the speech model runs.", convert=text, metavar="NAME"
    )


@dataclass(frozen=True)
class TraceOptions:
    """Traces and benchmarks"""

    graph_replays: int = option(
        0,
        "--cuda-profile-graph-replays",
        doc="SIGUSR2 writes the operations of this many model steps as a Chrome trace, "
        "octavo-trace-PID-1.json in the working folder; needs --benchmark-shutdown-fifo.",
        convert=integer(0),
        metavar="N",
    )
    graph_batch: int = option(
        0,
        "--cuda-profile-graph-batch",
        doc="Steps of this many sequences are traced. 0: 16.",
        convert=integer(0),
        metavar="N",
    )
    shutdown_fifo: str | None = option(
        None,
        "--benchmark-shutdown-fifo",
        doc="Named pipe: the byte Q stops the server cleanly, any other is a failure. "
        "Needs --cuda-profile-graph-replays.",
        convert=text,
        metavar="PATH",
    )
