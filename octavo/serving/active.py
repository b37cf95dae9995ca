"""Which client requests are running: their ids as clients know them, and the engine's ids."""

from collections.abc import Iterable, Sequence

from octavo.errors import InvalidRequest


class ActiveRequests:
    """Client request id → engine request ids (one a choice).

    coming: choices of these that have been let in, but are not in the engine yet.
    """

    def __init__(self) -> None:
        self._requests: dict[str, tuple[str, ...]] = {}
        self._aborted: set[str] = set()
        self.coming = 0

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, client_id: str, engine_ids: Sequence[str]) -> None:
        """Raises InvalidRequest when the client used this id for a request that still runs."""
        if client_id in self._requests:
            raise InvalidRequest(
                f"request_id: a request {client_id} is running; choose another id",
                param="request_id",
            )
        self._requests[client_id] = tuple(engine_ids)

    def remove(self, client_id: str) -> None:
        """The request has ended. Idempotent."""
        self._requests.pop(client_id, None)
        self._aborted.discard(client_id)

    def is_aborted(self, client_id: str) -> bool:
        """Does this request run, and is it marked?"""
        return client_id in self._aborted

    def mark_aborted(self, client_ids: Iterable[str] | None = None) -> list[tuple[str, ...]]:
        """Engine ids of each of these requests (None: of all) that runs and is not marked yet."""
        wanted = self._requests if client_ids is None else dict.fromkeys(client_ids)
        running = [i for i in wanted if i in self._requests and i not in self._aborted]
        self._aborted.update(running)
        return [self._requests[client_id] for client_id in running]
