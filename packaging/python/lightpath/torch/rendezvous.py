"""How the ranks of a new communicator get its id from torch's store.

A store may outlive a restart of its ranks (torchrun --max-restarts), with all keys of the ranks that ended. So no rank
trusts a key that it finds: a joining rank asks under a name that it has just made up and takes only the answer to that
name; the maker of the id looks for new questions until every rank has confirmed this id."""

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


def offer_id(
    store: Any,
    name: str,
    ranks: Iterable[int],
    timeout: datetime.timedelta,
    closing: threading.Event,
    uid: bytes = b"",
    check: Callable[[], None] = lambda: None,
) -> bytes:
    """Makes an id unless it gets one, and returns it when all of the ranks have confirmed it. It raises when closing
    is set, or when check does."""
    uid = uid or unique_id()
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

    _poll(offered, timeout, closing, check, lambda: f"ranks {sorted(waiting)} have not come to {name} within {timeout}")
    return uid


def take_id(
    store: Any,
    name: str,
    rank: int,
    maker: int,
    timeout: datetime.timedelta,
    closing: threading.Event,
    check: Callable[[], None] = lambda: None,
) -> bytes:
    """Returns the id that rank maker offers now. It raises when closing is set, or when check does."""
    question = uuid.uuid4().hex
    store.set(f"{name}/question/{rank}", question)
    store.add(f"{name}/asked/{rank}", 1)
    _poll(
        lambda: store.add(f"{name}/answered/{question}", 0),
        timeout,
        closing,
        check,
        lambda: f"rank {maker} has not come to {name} within {timeout}",
    )
    uid: bytes = store.get(f"{name}/answer/{question}")
    store.add(f"{name}/taken/{uid.hex()}/{rank}", 1)
    return uid


def meet(store: Any, name: str, rank: int, size: int, timeout: datetime.timedelta) -> None:
    """Returns when all ranks have come. Rank 0 waits for them first, and then lets them go."""
    for each in (name, f"the end of {name}"):
        if rank == 0:
            offer_id(store, each, range(1, size), timeout, threading.Event(), uuid.uuid4().bytes)
        else:
            take_id(store, each, rank, 0, timeout, threading.Event())


def _poll(
    done: Callable[[], Any],
    timeout: datetime.timedelta,
    closing: threading.Event,
    check: Callable[[], None],
    explain: Callable[[], str],
) -> None:
    """Polls instead of waiting in the store, whose client would block the process's other threads."""
    deadline, pause = time.monotonic() + timeout.total_seconds(), 0.001
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(explain())
        if closing.wait(pause):
            raise RuntimeError(DESTROYED)
        check()
        pause = min(2 * pause, 0.016)
