"""Which model a request means. One is served, under one name."""

from octavo.errors import ModelNotFound

SHOWN_CHARS = 200


def check_model(given: str | None, served_name: str) -> None:
    """None and the served name are accepted. Raises ModelNotFound naming the other."""
    if given is not None and given != served_name:
        shown = given if len(given) <= SHOWN_CHARS else given[:SHOWN_CHARS] + "..."
        raise ModelNotFound(
            f"the model {shown!r} is not served here; served: {served_name!r}", param="model"
        )
