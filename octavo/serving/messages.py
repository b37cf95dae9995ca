"""Messages of a chat request to what text/template.py takes. Whatever is no text is refused."""

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import InvalidRequest

TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
MEDIA_PARTS = (
    *("image_url", "image_pil", "image_embeds", "input_image", "video_url"),
    *("audio_url", "audio_embeds", "input_audio", "file"),
)


def template_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Content as one string, keys that are null left out.

    Raises InvalidRequest with the path of what cannot be read.
    """
    return [_message(message, f"messages.{i}") for i, message in enumerate(messages)]


def _message(message: Mapping[str, Any], path: str) -> dict[str, Any]:
    read = {key: value for key, value in message.items() if value is not None}
    read["content"] = _content(message.get("content"), message, path)
    return read


def _content(content: object, message: Mapping[str, Any], path: str) -> str:
    path += ".content"
    if isinstance(content, str):
        return content
    if content is None:
        if message.get("role") == "assistant":
            return ""  # only calls, or only reasoning
        raise InvalidRequest(f"{path} is required; a string or a list of parts", param=path)
    if not isinstance(content, list):
        raise InvalidRequest(f"{path} must be a string or a list of parts", param=path)
    return "\n".join(_part(part, f"{path}.{i}") for i, part in enumerate(content))


def _part(part: object, path: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, Mapping) and kind in TEXT_PARTS:
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise InvalidRequest(f"{path}.text must be a string", param=f"{path}.text")
        return text
    known = f"{kind} is not supported by this model" if kind in MEDIA_PARTS else "unknown part"
    raise InvalidRequest(
        f"{path}.type: {known} (given: {str(kind)[:64]!r}); allowed: {', '.join(TEXT_PARTS)}",
        param=f"{path}.type",
    )
