"""Models of the hub: what the cache holds is used as it is, what it lacks is fetched into it."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import ModelFileError
from octavo.weights.hub_cache import cached_model, hub_cache_folder
from octavo.weights.hub_files import HubId

if TYPE_CHECKING:
    from octavo.weights.hub_fetch import Check

log = logging.getLogger(__name__)


def hub_path(
    hub_id: HubId, *, progress: bool = True, newest: bool = False, check: "Check | None" = None
) -> Path:
    """The folder or GGUF file of a hub model; the network is touched for what is missing only.

    newest: ask the hub for a newer version of what the cache holds; when the hub cannot be reached
    the cached one is returned, and a warning logged. check: as in `hub_fetch.fetch`.
    Raises ModelFileError when the model cannot be fetched or written, saying what to do.
    """
    cache = hub_cache_folder()
    cached = cached_model(hub_id, cache)
    if cached is not None and not newest:
        return cached
    # Here, for most starts find the model: the library that speaks with the hub is not light.
    from octavo.weights.hub_errors import HubUnreachable
    from octavo.weights.hub_fetch import fetch

    try:
        return fetch(hub_id, cache, progress, check)
    except HubUnreachable as error:
        if cached is None:
            raise ModelFileError(
                f"{error}, and the model is not whole in the cache; try again when the hub is "
                "there, or name a folder or .gguf file of this machine"
            ) from None
        log.warning("%s; the version in the cache is used", error)
        return cached
