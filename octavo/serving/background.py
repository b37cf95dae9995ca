"""An event loop on a thread of its own, for callers that have none, or are busy inside one."""

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from octavo.errors import Unavailable

T = TypeVar("T")


class Background:
    """Runs coroutines for other threads. `close` at the end."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result. What interrupts the waiting thread cancels the work.

        Raises Unavailable when another thread closes the loop meanwhile.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Unavailable("closed while this was running") from None
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[T], keep: object = None) -> "Items[T]":
        """The items one by one, as they come. keep: what must live as long as somebody iterates."""
        return Items(self._loop, items, keep)

    @property
    def is_current(self) -> bool:
        """Is this the loop's own thread?"""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Cancel what runs and end the thread. Not from the loop's own thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        # Leaving the Runner cancels what is left and closes the loop.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


class _End:
    """Nothing more comes."""


class Items(Generic[T]):
    """Iterator over what an async generator on the loop yields; raises what it raises.

    `close` may be called from any thread and from signal handlers, also while another waits here:
    it cancels the generator, and the iteration ends.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, items: AsyncGenerator[T], keep: object
    ) -> None:
        self._keep = keep
        self._queue: queue.SimpleQueue[T | Exception | _End] = queue.SimpleQueue()
        self._ended = False
        self._future = asyncio.run_coroutine_threadsafe(self._pump(items), loop)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        item = self._queue.get()
        if isinstance(item, _End):
            self._ended = True
            raise StopIteration
        if isinstance(item, Exception):
            self._ended = True
            raise item
        return item

    def close(self) -> None:
        """Want no more. Idempotent; what came before may still be iterated."""
        self._future.cancel()
        self._queue.put(_End())  # the pump may have been cancelled before it began

    def __enter__(self) -> "Items[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _pump(self, items: AsyncGenerator[T]) -> None:
        try:
            async with aclosing(items):
                async for item in items:
                    self._queue.put(item)
        except Exception as error:
            self._queue.put(error)
        else:
            self._queue.put(_End())
