"""How the ranks of a new communicator get its id from torch's store.

A store may outlive a restart of its ranks (torchrun --max-restarts), with all keys of the ranks that ended. So no rank
trusts a key that it finds: a joining rank asks under a name that it has just made up and takes only the answer to that
name; the maker of the id looks for new questions until every rank has confirmed this id."""

import dataclasses
import datetime
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from .engine import DESTROYED, Engine, unique_id


def leave(engines: dict[Any, Engine], store: Any, rank: int) -> None:
    """Ends a group's engines. Before that, the rank tells peers that may wait for a first message."""
    group = engines.get(None)
    try:
        if group and group.uid and group.owned:
            group.check()  # the peers of a failed group know, and its store may not answer
            store.add(_left(group.uid, rank), 1)
    except Exception:
        pass  # the store has ended, and so have the ranks that could wait for this one
    for engine in list(engines.values()):
        engine.close()


def check_left(store: Any, uid: bytes, rank: int) -> None:
    """Raises if a rank has left the group with this id."""
    if store.add(_left(uid, rank), 0):
        raise RuntimeError(f"rank {rank} has destroyed the process group")


def _left(uid: bytes, rank: int) -> str:
    return f"left/{uid.hex()}/{rank}"


@dataclasses.dataclass
class Meeting:
    """Ranks that meet in a store. A wait raises after the timeout, when closing is set, or when check raises."""

    store: Any
    timeout: datetime.timedelta
    closing: threading.Event = dataclasses.field(default_factory=threading.Event)
    check: Callable[[], None] = lambda: None

    def offer(self, name: str, ranks: Iterable[int], uid: bytes = b"") -> bytes:
        """Makes an id unless it gets one, and returns it when all of the ranks have confirmed it."""
        store, uid = self.store, uid or unique_id()
        answered: dict[int, int] = {}
        waiting = set(ranks)

        def offered() -> bool:
            for rank in list(waiting):
                asked = store.add(f"{name}/asked/{rank}", 0)
                if asked != answered.get(rank, 0):
                    question = store.get(f"{name}/question/{rank}").decode()
                    store.set(f"{name}/answer/{question}", uid)
                    store.add(f"{name}/answered/{question}", 1)
                    answered[rank] = asked
                if store.add(f"{name}/taken/{uid.hex()}/{rank}", 0):
                    waiting.remove(rank)
            return not waiting

        self._poll(offered, lambda: f"ranks {sorted(waiting)} have not come to {name}")
        return uid

    def take(self, name: str, rank: int, maker: int) -> bytes:
        """Returns the id that rank maker offers now."""
        question = uuid.uuid4().hex
        self.store.set(f"{name}/question/{rank}", question)
        self.store.add(f"{name}/asked/{rank}", 1)
        self._poll(
            lambda: self.store.add(f"{name}/answered/{question}", 0), lambda: f"rank {maker} has not come to {name}"
        )
        uid: bytes = self.store.get(f"{name}/answer/{question}")
        self.store.add(f"{name}/taken/{uid.hex()}/{rank}", 1)
        return uid

    def _poll(self, done: Callable[[], Any], explain: Callable[[], str]) -> None:
        """Polls instead of waiting in the store, whose client would block the process's other threads."""
        deadline, pause = time.monotonic() + self.timeout.total_seconds(), 0.001
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{explain()} within {self.timeout}")
            if self.closing.wait(pause):
                raise RuntimeError(DESTROYED)
            self.check()
            pause = min(2 * pause, 0.016)


def meet(store: Any, name: str, rank: int, size: int, timeout: datetime.timedelta) -> None:
    """Returns when all ranks have come. Rank 0 waits for them first, and then lets them go."""
    meeting = Meeting(store, timeout)
    for each in (name, f"the end of {name}"):
        if rank == 0:
            meeting.offer(each, range(1, size), uuid.uuid4().bytes)
        else:
            meeting.take(each, rank, 0)
