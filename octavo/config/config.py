"""The whole configuration as one frozen value."""

import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from octavo.config.feature_options import (
    MediaOptions,
    SpeculativeOptions,
    SpeechOptions,
    TraceOptions,
    TransferOptions,
    VideoOptions,
)
from octavo.config.options import (
    CacheOptions,
    LogOptions,
    ModelOptions,
    ParserOptions,
    SchedulerOptions,
    ServerOptions,
)


@dataclass(frozen=True, slots=True)
class Config:
    """What a server is started with.

    A `Config` made by hand has the defaults and is not checked; `parse_args` and `check` check.
    notices and warnings: lines for the log at start (choices made for the user; flags without
    effect, an open address).
    """

    model: ModelOptions = field(default_factory=ModelOptions)
    cache: CacheOptions = field(default_factory=CacheOptions)
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    parsers: ParserOptions = field(default_factory=ParserOptions)
    server: ServerOptions = field(default_factory=ServerOptions)
    logs: LogOptions = field(default_factory=LogOptions)
    transfer: TransferOptions = field(default_factory=TransferOptions)
    speculative: SpeculativeOptions = field(default_factory=SpeculativeOptions)
    media: MediaOptions = field(default_factory=MediaOptions)
    video: VideoOptions = field(default_factory=VideoOptions)
    speech: SpeechOptions = field(default_factory=SpeechOptions)
    trace: TraceOptions = field(default_factory=TraceOptions)
    notices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def served_name(self) -> str:
        """The model's only name in requests: as given, else the last part of the model's path."""
        path = os.path.abspath(self.model.model)  # `.` and `dir/` have a last part too
        return self.model.served_model_name or os.path.basename(path) or path


GROUPS: dict[str, Any] = {
    member.name: member.default_factory
    for member in fields(Config)
    if member.default_factory is not MISSING
}  # field of Config -> its options class


def config_from(values: Mapping[str, Any]) -> Config:
    """A `Config` with these values by field name (`{"port": 80}`) and the defaults otherwise."""
    groups = {
        name: group(**{m.name: values[m.name] for m in fields(group) if m.name in values})
        for name, group in GROUPS.items()
    }
    return Config(**groups)
