"""`--limit-mm-per-prompt`: how many pictures, sounds and videos one prompt may hold."""

from octavo.config.json_values import check_keys, count_value, json_object
from octavo.errors import ConfigError

FLAG = "--limit-mm-per-prompt"
CEILING = 999
# The sizes beside `count` are vLLM's hints for measuring memory; here they limit nothing.
ENTRY_KEYS = {
    "image": ("count", "width", "height"),
    "audio": ("count", "length"),
    "video": ("count", "num_frames", "width", "height"),
}


def check_media_limits(text: str) -> None:
    """Raises ConfigError naming the modality at fault."""
    given = json_object(FLAG, text)
    check_keys(FLAG, given, ENTRY_KEYS)
    for modality, entry in given.items():
        if not isinstance(entry, dict):
            count_value(FLAG, given, modality, 0, CEILING)
            continue
        where = f"{FLAG}: {modality}"
        check_keys(where, entry, ENTRY_KEYS[modality])
        for hint in ENTRY_KEYS[modality][1:]:
            count_value(where, entry, hint, 1)
        if count_value(where, entry, "count", 0, CEILING) is None:
            raise ConfigError(f"{where} needs 'count'")
