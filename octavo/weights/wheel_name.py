"""What names a wheel."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WheelName:
    """A wheel for any platform: project, version, and its file name on the index."""

    project: str
    version: str

    @property
    def file_name(self) -> str:
        return f"{self.project.replace('-', '_')}-{self.version}-py3-none-any.whl"
