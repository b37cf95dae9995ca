"""The configuration of a server: frozen values, the only home of every default.

`Config` and its groups are values; `parse_args` makes one from a command line.
"""

from octavo.config.config import Config, config_from
from octavo.config.feature_options import (
    MediaOptions,
    SpeculativeOptions,
    SpeechOptions,
    TraceOptions,
    TransferOptions,
    VideoOptions,
)
from octavo.config.keywords import config_from_keywords
from octavo.config.options import (
    DEFAULT_MODEL,
    CacheOptions,
    LogOptions,
    ModelOptions,
    ParserOptions,
    SchedulerOptions,
    ServerOptions,
)
from octavo.config.parser import Shown, parse_args, parse_args_and, parse_values, usage

__all__ = [
    "DEFAULT_MODEL",
    "CacheOptions",
    "Config",
    "LogOptions",
    "MediaOptions",
    "ModelOptions",
    "ParserOptions",
    "SchedulerOptions",
    "ServerOptions",
    "Shown",
    "SpeculativeOptions",
    "SpeechOptions",
    "TraceOptions",
    "TransferOptions",
    "VideoOptions",
    "config_from",
    "config_from_keywords",
    "parse_args",
    "parse_args_and",
    "parse_values",
    "usage",
]
