"""Ids of communicators through a store that has outlived a restart of the ranks."""

import datetime
import os
import threading
import unittest
import unittest.mock

import ranks  # before the others: it says where they are

import torch.distributed as dist

from lightpath.torch.rendezvous import Meeting

TIMEOUT = datetime.timedelta(seconds=ranks.BOUND_SECONDS)


def joined(store, size, first):
    """The ids that all ranks get when rank 0 is the first of them, or the last."""
    ids, meeting = [None] * size, Meeting(store, TIMEOUT)

    def join(rank):
        if rank == 0:
            ids[0] = meeting.offer("id", range(1, size))
        else:
            ids[rank] = meeting.take("id", rank, 0)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(size)]
    if not first:
        threads.reverse()
        for thread in threads[:-1]:
            thread.start()
        while any(store.add(f"id/asked/{rank}", 0) == 0 for rank in range(1, size)):
            pass
        threads[-1].start()
    else:
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    return ids


# Not of the library: the other tests fork this process, which must not have loaded it.
@unittest.mock.patch("lightpath.torch.rendezvous.unique_id", lambda: os.urandom(128))
class Rendezvous(unittest.TestCase):
    def test_every_attempt_has_its_own_id(self):
        store, seen = dist.HashStore(), set()
        for attempt in range(6):
            ids = joined(store, 3, first=attempt % 2 == 0)
            self.assertEqual(ids, [ids[0]] * 3)
            self.assertNotIn(ids[0], seen)
            seen.add(ids[0])

    def test_a_rank_that_asked_and_died_is_answered_in_vain(self):
        store = dist.HashStore()
        store.set("id/question/1", "of a dead rank")
        store.add("id/asked/1", 1)
        ids = joined(store, 2, first=True)
        self.assertEqual(ids[0], ids[1])

    def test_absent_ranks_are_named(self):
        soon = Meeting(dist.HashStore(), datetime.timedelta(seconds=0))
        with self.assertRaisesRegex(TimeoutError, r"ranks \[1, 2\] have not come to id within"):
            soon.offer("id", [1, 2])
        with self.assertRaisesRegex(TimeoutError, "rank 0 has not come to id within"):
            soon.take("id", 1, 0)
