"""What a training job sees of ranks that die, of ranks that do something else, and of fork."""

import datetime
import gc
import multiprocessing
import os
import signal
import threading
import traceback
import unittest

import ranks  # before the others: it says where they are

import text
import torch
import torch.distributed as dist
import train
from lightpath.torch import LightpathProcessGroup
from lightpath.torch.call import Call

# A bound for errors: far above what any of them takes, far below the bound on the test.
TIMEOUT = {"LIGHTPATH_TIMEOUT": "60s"}
VICTIM = 1


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def killed_between_calls():
    try:
        dist.all_reduce(torch.ones(1000))  # which fails already where a rank is not done with it when the victim is
        if dist.get_rank() == VICTIM:
            die()
        for _ in range(100000):
            dist.all_reduce(torch.ones(1000))
    except Exception as error:
        try:
            dist.all_reduce(torch.ones(1))  # and it stays failed
        except Exception:
            return type(error).__name__, str(error)
    return None


def killed_before_messages():
    """The first messages of pairs of ranks, one of which has died: no communicator of theirs is there yet."""
    if dist.get_rank() == VICTIM:
        die()
    try:
        dist.send(torch.ones(1), VICTIM) if dist.get_rank() == 0 else dist.recv(torch.ones(1), VICTIM)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def left_before_messages():
    """As above, of ranks one of which has left the group in good order."""
    if dist.get_rank() == VICTIM:
        dist.distributed_c10d._get_default_group().shutdown()
        return None
    try:
        dist.send(torch.ones(1), VICTIM) if dist.get_rank() == 0 else dist.recv(torch.ones(1), VICTIM)
    except Exception as error:
        return str(error)
    return "nothing"


def killed_in_training():
    """The victim ends during DDP's backward: the others learn of it in C++, from a future."""
    args = train.arguments(["--ways", "lightpath:ddp", "--batch", "8", "--hidden", "32"])
    _, _, characters = text.load()
    trainer = train.Trainer(args, "lightpath:ddp", characters)
    contexts, following = torch.zeros(8, text.CONTEXT, dtype=torch.long), torch.zeros(8, dtype=torch.long)
    try:
        trainer.step(contexts, following)  # which may fail already, as above
        if dist.get_rank() == VICTIM:
            trainer.model.module.first.weight.register_hook(lambda _: die())
        for _ in range(100000):
            trainer.step(contexts, following)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def mismatched():
    try:
        dist.all_reduce(torch.ones(10 if dist.get_rank() == VICTIM else 11))
    except Exception as error:
        return str(error)
    return None


def late():
    """The victim comes to a group's call when its peers have given it up. Their other group goes on."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    dist.all_reduce(torch.ones(1), group=group)
    said = []
    if dist.get_rank() == VICTIM:
        dist.barrier()  # to which the peers come after the time-out
    for _ in range(2):
        try:
            dist.all_reduce(torch.ones(1), group=group)
            said.append("nothing")
        except Exception as error:
            said.append(str(error))
    if dist.get_rank() != VICTIM:
        dist.barrier()
    dist.all_reduce(tensor := torch.ones(1))
    return said, tensor.item()


def library_threads():
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("lightpath rank"))


def ended_early():
    """A rank ends a group while one of its receives looks for the sender, and another call waits for peers."""
    group, me = dist.distributed_c10d._get_default_group(), dist.get_rank()
    calls = [dist.irecv(torch.zeros(1), 1 - me)]
    if me == 0:
        calls += [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(2)]
    group.shutdown()
    said = []
    for wait in (*(call.wait for call in calls), lambda: dist.send(torch.ones(1), 1 - me)):
        try:
            wait()
            said.append("nothing")
        except Exception as error:
            said.append(str(error))
    return said, library_threads()


def alone_too_long():
    """A receive of a message to itself that has failed takes no later message, and others stay."""
    group, me = dist.new_group(timeout=datetime.timedelta(seconds=0.5)), dist.get_rank()
    receives, tensors = [], [torch.zeros(2), torch.zeros(2)]
    for tensor in tensors:
        receives.append(group.recv([tensor], me, 1))
        try:
            group.recv([torch.zeros(2)], me, 1).wait()
        except Exception as error:
            said = str(error)
    for i, receive in enumerate(receives, 1):
        group.send([torch.full((2,), float(i))], me, 1).wait()
        receive.wait()
    return said, [tensor.tolist() for tensor in tensors]


def failing_again():
    """What calls of a failed group leave behind."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=0.5))
    depths = set()
    if dist.get_rank() == 0:
        for _ in range(5):
            try:
                dist.all_reduce(torch.ones(1), group=group)
            except Exception as error:
                depths.add(len(traceback.extract_tb(error.__traceback__)))
    dist.barrier()
    return depths


def failing_to_begin():
    """The threads of a group that has never come to be."""
    before = library_threads()
    try:
        LightpathProcessGroup(dist.HashStore(), 0, 2, datetime.timedelta(0))
    except Exception as error:
        assert "ranks [1] have not come" in str(error), error
    gc.collect()
    return before, library_threads()


def interrupted():
    """A signal's handler raises in a thread that runs a call."""
    engine = dist.distributed_c10d._get_default_group()._engines[None]

    def function(*_):
        raise KeyboardInterrupt

    work = engine.submit(Call("interrupted", [(function,)], []), [], waits=True)
    try:
        work.wait()
    except KeyboardInterrupt:
        pass
    dist.all_reduce(tensor := torch.ones(1))
    return work.is_completed() and str(work.exception()), engine._pending, tensor.item()


def loading():
    """DataLoader's workers, forked from a process that uses the library."""
    data, _, _ = text.load()
    counts = []
    for method in ("fork", "forkserver"):
        loader = torch.utils.data.DataLoader(
            torch.utils.data.Subset(data, range(64)), batch_size=16, num_workers=2, multiprocessing_context=method
        )
        total = torch.zeros(1)
        for contexts, _ in loader:
            total += len(contexts)
            dist.all_reduce(torch.ones(1))  # the parent goes on meanwhile
        dist.all_reduce(total)
        counts.append(int(total))
    return counts


def calling_in_a_fork():
    """What a child says that calls the library itself, and whether the parent can go on."""
    dist.all_reduce(torch.ones(1))
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)

    def child():
        said = []
        for call in (
            lambda: dist.all_reduce(torch.ones(1)),
            dist.barrier,
            lambda: dist.send(torch.ones(1), 1 - dist.get_rank()),
            lambda: dist.recv(torch.ones(1), 1 - dist.get_rank()),
        ):
            try:
                call()
                said.append("nothing")
            except Exception as error:
                said.append(str(error))
        theirs.send(said)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    said = ours.recv() if ours.poll(ranks.BOUND_SECONDS) else ["silence"]
    process.join()
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return said, tensor.item()


class Faults(unittest.TestCase):
    def setUp(self):
        ranks.require_library()

    def survivors_name_the_victim(self, body, env):
        results = ranks.run(3, body, env={**TIMEOUT, **env})
        self.assertIsInstance(results[VICTIM], ranks.Died)
        for rank in (0, 2):
            self.assertIsInstance(results[rank], tuple, f"rank {rank}: {results[rank]}")
            self.assertIn(f"rank {VICTIM}", results[rank][1], f"rank {rank} does not name it")

    def test_the_time_out_of_a_group(self):
        results = ranks.all_good(ranks.run(3, late))
        for rank, (said, total) in enumerate(results):
            self.assertEqual(total, 3)
            self.assertNotIn("nothing", said, f"rank {rank}")
        self.assertTrue(any("timeout" in said[0] and "2 s" in said[0] for said, _ in results), results)

    def test_a_rank_is_killed(self):
        self.survivors_name_the_victim(killed_between_calls, {})

    def test_a_rank_is_killed_over_tcp(self):
        self.survivors_name_the_victim(killed_between_calls, {"LIGHTPATH_TRANSPORT": "tcp", "LIGHTPATH_PLANES": "2"})

    def test_a_rank_is_killed_before_messages(self):
        self.survivors_name_the_victim(killed_before_messages, {"LIGHTPATH_TIMEOUT": "600s"})

    def test_a_rank_leaves_before_messages(self):
        results = ranks.all_good(ranks.run(3, left_before_messages))
        for rank in (0, 2):
            self.assertIn(f"rank {VICTIM} has destroyed", results[rank])

    def test_a_rank_is_killed_in_training(self):
        self.survivors_name_the_victim(killed_in_training, {})

    def test_calls_that_do_not_match(self):
        for rank, said in enumerate(ranks.run(2, mismatched, env=TIMEOUT)):
            self.assertIsInstance(said, str, f"rank {rank} noticed nothing")
            self.assertIn("ncclAllReduce", said)

    def test_a_group_ends_while_calls_wait(self):
        for said, threads in ranks.all_good(ranks.run(2, ended_early)):
            for text_of_error in said:  # a rank that ends later learns first that rank 0 has aborted its calls
                self.assertRegex(text_of_error, "destroyed|rank 0 aborted")
            self.assertEqual(threads, [])

    def test_a_message_to_itself_that_is_late(self):
        ((said, received),) = ranks.all_good(ranks.run(1, alone_too_long))
        self.assertIn("no match", said)
        self.assertEqual(received, [[1, 1], [2, 2]])

    def test_a_failed_group_holds_no_frames(self):
        self.assertEqual(len(ranks.all_good(ranks.run(2, failing_again))[0]), 1)

    def test_a_group_that_cannot_begin_leaves_no_thread(self):
        for before, after in ranks.all_good(ranks.run(2, failing_to_begin)):
            self.assertEqual(after, before)

    def test_an_interrupted_call(self):
        for said, pending, total in ranks.all_good(ranks.run(2, interrupted)):
            self.assertIn("interrupted", said)
            self.assertEqual((pending, total), (0, 2))

    def test_loading_processes(self):
        self.assertEqual(ranks.all_good(ranks.run(2, loading)), [[128, 128]] * 2)

    def test_calls_in_a_forked_child(self):
        for said, total in ranks.all_good(ranks.run(2, calling_in_a_fork)):
            self.assertEqual(total, 2)
            for text_of_error in said:
                self.assertIn("forked", text_of_error)


if __name__ == "__main__":
    unittest.main()
