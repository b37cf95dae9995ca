"""What goes wrong between Octavo and the hub, in one line that says what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from octavo.errors import ModelFileError
from octavo.weights.hub_files import HubId
from octavo.weights.mapped import shown


class HubUnreachable(ModelFileError):
    """The hub does not answer, or may not be asked."""


def is_of_disk(error: OSError) -> bool:
    """Whether a file is at fault, and not a connection."""
    return (error.errno is not None and error.filename is not None) or error.errno == errno.ENOSPC


@contextmanager
def in_words(hub_id: HubId) -> Iterator[None]:
    """Turns what the library raises into a ModelFileError of one line."""
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    # The library's own HTTP errors derive from that of its HTTP client, whose name has changed.
    http_error: type[Exception] = HfHubHTTPError.__mro__[1]
    try:
        yield
    except OfflineModeIsEnabled:
        raise HubUnreachable("HF_HUB_OFFLINE forbids to ask the hub") from None
    except HfHubHTTPError as error:
        _raise_refusal(error, f"{constants.ENDPOINT}/{hub_id.repo}")
    except http_error as error:
        raise HubUnreachable(
            f"the hub {constants.ENDPOINT} cannot be reached ({_reason(error)})"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"{constants.ENDPOINT} answers, but not as a hub does ({_reason(error)}); "
            "see HF_ENDPOINT"
        ) from None
    except OSError as error:
        if is_of_disk(error):
            raise
        raise HubUnreachable(f"the download broke off ({_reason(error)})") from None


def _raise_refusal(error: Any, page: str) -> NoReturn:
    """What the hub's status says."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    status = error.response.status_code
    token = "the token given is not enough" if get_token() else "set HF_TOKEN to your token"
    if isinstance(error, GatedRepoError):
        raise ModelFileError(f"it is gated: ask for access at {page}; {token}") from None
    if isinstance(error, RepositoryNotFoundError):
        raise ModelFileError(
            "the hub has no such model, nor is there such a file or folder here: check the name; "
            f"if the model is private, {token}"
        ) from None
    if status in (401, 403):
        raise ModelFileError(f"the hub refuses it ({status}): {token}") from None
    if status == 404:
        raise ModelFileError("the hub does not have a file that it lists; try again") from None
    if status == 429 or status >= 500:
        raise HubUnreachable(f"the hub answers {status}") from None
    raise ModelFileError(f"the hub answers {status} to {page}") from None


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return shown(text)[1:-1] if text.isprintable() else shown(text)
