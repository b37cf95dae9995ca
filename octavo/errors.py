"""Every error that Octavo tells people of: one tree, drawn here.

OctavoError
├── ConfigError            a flag, file or model that cannot be served: exit code 1, one line
│   ├── UsageError         the command line itself is wrong: exit code 2, with usage
│   ├── NotBuilt           a known feature that this version does not have yet, refused by name
│   └── ModelFileError     a model file that is missing, broken or of an unknown kind
└── RequestError           one request failed; `status`, `type`, `code`, `param` are its HTTP form
    ├── InvalidRequest     400
    │   └── ContextTooLong 400, code `context_length_exceeded`
    ├── Unauthorized       401
    ├── NotFound           404
    │   └── ModelNotFound  404, code `model_not_found`
    ├── MethodNotAllowed   405
    ├── RequestTimeout     408: the body did not come
    ├── BodyTooLarge       413
    ├── HeadersTooLarge    431
    ├── TooManyRequests    429, with `retry_after_s`
    ├── EngineFailure      500: a step failed; the engine goes on
    └── Unavailable        503: draining or the engine is dead, with `retry_after_s`

A message says what was wrong, what is allowed and what to do. It is shown to strangers: no path of
this machine, no type names, no traceback. Exceptions that only steer (`config.Shown`,
`api.sse.ClientGone`) are no errors and live where they are caught.
"""

from typing import ClassVar


class OctavoError(Exception):
    """Base of all. `str(error)` is the sentence for people."""


class ConfigError(OctavoError):
    """The server cannot start like this."""

    exit_code: ClassVar[int] = 1


class UsageError(ConfigError):
    """The command line is wrong: shown with usage."""

    exit_code: ClassVar[int] = 2


class NotBuilt(ConfigError):
    """A known feature that this version does not have yet."""


class ModelFileError(ConfigError):
    """A model file is missing, broken or of a kind we do not read."""


class RequestError(OctavoError):
    """One request failed.

    `param` is the dotted path of the field at fault, `code` a word that OpenAI clients expect
    (else the HTTP status is sent).
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "InternalServerError"
    default_code: ClassVar[str | None] = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code: str | int = code or self.default_code or self.status


class InvalidRequest(RequestError):
    """The body asks for something wrong or impossible."""

    status = 400
    type = "BadRequestError"


class ContextTooLong(InvalidRequest):
    """The prompt does not fit the model's length."""

    default_code = "context_length_exceeded"


class Unauthorized(RequestError):
    """The API key is missing or wrong."""

    status = 401
    type = "AuthenticationError"
    default_code = "invalid_api_key"


class NotFound(RequestError):
    """No such route or object."""

    status = 404
    type = "NotFoundError"


class ModelNotFound(NotFound):
    """The request names a model that is not served here."""

    default_code = "model_not_found"


class MethodNotAllowed(RequestError):
    """The route exists, but not for this method."""

    status = 405
    type = "BadRequestError"


class RequestTimeout(RequestError):
    """The request body stopped coming."""

    status = 408
    type = "BadRequestError"


class HeadersTooLarge(RequestError):
    """The request's line and headers are larger than this server reads."""

    status = 431
    type = "BadRequestError"


class BodyTooLarge(RequestError):
    """The request body is larger than this server reads."""

    status = 413
    type = "BadRequestError"


class TooManyRequests(RequestError):
    """The waiting queue is full."""

    status = 429
    type = "RateLimitError"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineFailure(RequestError):
    """A model step failed; its requests are lost, the engine goes on."""


class Unavailable(RequestError):
    """The server is stopping, or its engine is dead."""

    status = 503
    type = "ServiceUnavailableError"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
