"""`--limit-mm-per-prompt`: how many pictures, sounds and videos one prompt may hold."""

from octavo.config.feature_options import MediaOptions
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


def media_limits(options: MediaOptions) -> dict[str, int]:
    """Most items by modality. Raises ConfigError naming the modality at fault."""
    limits = dict.fromkeys(ENTRY_KEYS, CEILING)
    if options.limit_mm_per_prompt is not None:
        limits |= _given_limits(options.limit_mm_per_prompt)
    return dict.fromkeys(ENTRY_KEYS, 0) if options.language_model_only else limits


def _given_limits(text: str) -> dict[str, int]:
    given = json_object(FLAG, text)
    check_keys(FLAG, given, ENTRY_KEYS)
    limits = {}
    for modality, entry in given.items():
        where = FLAG
        key = modality
        if isinstance(entry, dict):
            where = f"{FLAG}: {modality}"
            check_keys(where, entry, ENTRY_KEYS[modality])
            for hint in ENTRY_KEYS[modality][1:]:
                count_value(where, entry, hint, 1)
            key = "count"
        count = count_value(where, entry if isinstance(entry, dict) else given, key, 0, CEILING)
        if count is None:
            raise ConfigError(f"{where} needs 'count'")
        limits[modality] = count
    return limits
