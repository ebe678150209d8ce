#!/usr/bin/env python3
"""Trains on while ranks are killed and others join. The survivors keep the model in memory: no checkpoint is read.

    elastic.py -n 4 --steps 150 --kill 50 --kill 80 --join 110 --out run.json
    elastic.py --optical ...                     # over an emulated optical fabric
    elastic.py --plot elastic.png run.json       # its loss curve upon that of a run without faults

The process that you start is the supervisor. It starts the ranks. After as many steps as --kill says it kills rank 0
with SIGKILL, and for each --join it starts a rank. It publishes the members of each generation in a store. When a call
fails, or when a rank wants to join, all ranks end their group and form the next one.

A rank may have made a step of which another one saw only the failure. So the new group begins with the state of a rank
that has made most steps. Ranks divide the same batch, however many they are. So the loss curve is the one of a run
without faults, but for the order of additions."""

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import signal
import time

import torch
import torch.distributed as dist

import lightpath.torch  # noqa: F401, registers the backend
import text
from launch import optical_fabric
from train import Model, difference

BATCH = 240  # of all ranks; 1, 2, 3, 4, 5 and 6 ranks divide it evenly
HIDDEN, RATE, SEED = 256, 5e-3, 1
KILL, JOIN = "kill", "join"
POLL_SECONDS = 0.01
# How long a rank waits for the next members, and for those to come.
GENERATION_SECONDS = 60


class Membership:
    """The members of each generation, in the supervisor's store."""

    def __init__(self, store):
        self.store = store

    def publish(self, generation, members):
        self.store.set(f"members/{generation}", json.dumps(members))
        self.store.add("generation", 1)

    def latest(self):
        return self.store.add("generation", 0)

    def after(self, generation):
        """Waits for a later generation. Returns it and its members."""
        deadline = time.monotonic() + GENERATION_SECONDS
        while self.latest() <= generation:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no members after generation {generation}")
            time.sleep(POLL_SECONDS)
        latest = self.latest()
        return latest, json.loads(self.store.get(f"members/{latest}"))


class Worker:
    """A rank of the job. Its number in the group changes with the generation, its name does not."""

    def __init__(self, name, store, steps, events):
        self.name, self.steps, self.events = name, steps, events
        self.store, self.membership = store, Membership(store)
        self.data, _, characters = text.load()
        torch.manual_seed(SEED)
        self.model = Model(characters, HIDDEN)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE)
        self.losses, self.ranks = [], []  # of each step

    def run(self):
        generation = 0
        while len(self.losses) < self.steps:
            generation, members = self.membership.after(generation)
            try:
                self.join(generation, members)
                self.train(generation)
            except RuntimeError as error:  # what a failed call raises, also in backward
                print(f"rank {self.name}, step {len(self.losses)}: {str(error).splitlines()[0]}", flush=True)
            finally:
                if dist.is_initialized():
                    dist.destroy_process_group()
        if members[0] == self.name:
            self.store.set("result", json.dumps({"loss": self.losses, "ranks": self.ranks}))

    def join(self, generation, members):
        """Forms a group, and takes over the state of a rank that has made most steps."""
        dist.init_process_group(
            "lightpath", store=dist.PrefixStore(f"group/{generation}", self.store),
            rank=members.index(self.name), world_size=len(members),
        )  # fmt: skip
        steps = [None] * len(members)
        dist.all_gather_object(steps, len(self.losses))
        state = [[self.losses, self.ranks, self.model.state_dict(), self.optimizer.state_dict()]]
        dist.broadcast_object_list(state, src=steps.index(max(steps)))
        self.losses, self.ranks, model, optimizer = state[0]
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)

    def train(self, generation):
        """Makes steps until all have been made or the members change."""
        model = torch.nn.parallel.DistributedDataParallel(self.model)
        rank, size = dist.get_rank(), dist.get_world_size()
        while len(self.losses) < self.steps:
            if rank == 0:
                self.await_events()
            contexts, following = self.batch(rank, size)
            self.optimizer.zero_grad(set_to_none=False)
            loss = torch.nn.functional.cross_entropy(model(contexts), following)
            loss.backward()
            facts = torch.tensor([loss.item() / size, self.membership.latest() > generation], dtype=torch.float64)
            dist.all_reduce(facts)  # all ranks leave after the same step
            self.optimizer.step()
            self.losses.append(facts[0].item())
            self.ranks.append(size)
            if facts[1] > 0:
                return

    def await_events(self):
        """Waits until the supervisor has done what it does at this step, so that each run is the same."""
        step = len(self.losses)
        self.store.set("step", str(step))
        while self.store.add("events", 0) < sum(at <= step for at, _ in self.events):
            time.sleep(POLL_SECONDS)

    def batch(self, rank, size):
        """This rank's part of the batch of the next step, which is the same for any number of ranks."""
        order = torch.Generator().manual_seed(SEED + len(self.losses))
        items = torch.randint(len(self.data), (BATCH,), generator=order)[rank::size]
        contexts, following = zip(*(self.data[i] for i in items))
        return torch.stack(contexts), torch.stack(following)


def work(name, port, steps, events):
    torch.set_num_threads(1)
    Worker(name, dist.TCPStore("127.0.0.1", port, None, False), steps, events).run()


class Supervisor:
    """Starts and kills ranks, and publishes the members. events: after how many steps it does what, in order."""

    def __init__(self, ranks, steps, events=()):
        self.first, self.steps, self.events = ranks, steps, events
        self.store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        self.membership, self.generation = Membership(self.store), 0
        self.ranks, self.names = {}, itertools.count()  # processes by name

    def start(self):
        name = next(self.names)
        process = multiprocessing.get_context("spawn").Process(
            target=work, args=(name, self.store.port, self.steps, self.events)
        )
        process.start()
        self.ranks[name] = process

    def kill(self):
        os.kill(self.ranks[min(self.ranks)].pid, signal.SIGKILL)

    def join(self):
        self.start()
        self.publish()

    def publish(self):
        self.generation += 1
        self.membership.publish(self.generation, sorted(self.ranks))

    def run(self):
        """Runs the job, and returns its loss and number of ranks by step."""
        self.store.set("step", "0")
        for _ in range(self.first):
            self.start()
        self.publish()
        events = list(self.events)
        while any(p.exitcode is None for p in self.ranks.values()):
            step = int(self.store.get("step"))
            if events and step >= events[0][0]:
                if events.pop(0)[1] == KILL:
                    self.kill()
                else:
                    self.join()
                self.store.add("events", 1)
            dead = [name for name, p in self.ranks.items() if p.exitcode]
            for name in dead:
                print(f"step {step}: rank {name} has ended ({self.ranks.pop(name).exitcode})", flush=True)
            if dead:
                self.publish()
            time.sleep(POLL_SECONDS)
        if not self.ranks:
            raise SystemExit("elastic.py: no rank is left")
        return json.loads(self.store.get("result"))


def plot(path, results):
    """Draws the loss of both runs, and marks where the number of ranks changes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4), constrained_layout=True)
    axes.plot(results["steady"]["loss"], color="#777777", linewidth=5, alpha=0.5, label="no rank is killed")
    axes.plot(results["elastic"]["loss"], color="#1f5fbf", linewidth=1.5, label="ranks are killed and join")
    ranks = results["elastic"]["ranks"]
    for step, (before, after) in enumerate(itertools.pairwise(ranks), 1):
        if before != after:
            axes.axvline(step, color="black", linewidth=0.8, linestyle=":")
            axes.text(step, axes.get_ylim()[1], f" {before} to {after} ranks", va="top", fontsize=8)
    axes.set(xlabel="step", ylabel="training loss (nats per character)")
    axes.legend(loc="center right", edgecolor="none", framealpha=1)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=80)


def arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--ranks", type=int, default=4, help="at the begin")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--kill", type=int, action="append", default=[], help="kill a rank after so many steps")
    parser.add_argument("--join", type=int, action="append", default=[], help="start a rank after so many steps")
    parser.add_argument("--optical", action="store_true", help="over an emulated optical fabric")
    parser.add_argument("--plot", help="draw the curves of a file of --out into this file")
    parser.add_argument("--out", help="JSON file for the results")
    parser.add_argument("file", nargs="?", help="results to draw")
    return parser.parse_args(argv)


def run(args):
    """The results of a run with faults, and of one without."""
    events = sorted([(step, KILL) for step in args.kill] + [(step, JOIN) for step in args.join])
    with optical_fabric(args.ranks) if args.optical else contextlib.nullcontext({}) as environment:
        os.environ.update(environment)
        try:
            return {
                "elastic": Supervisor(args.ranks, args.steps, events).run(),
                "steady": Supervisor(args.ranks, args.steps).run(),
            }
        finally:
            for name in environment:
                del os.environ[name]


def main():
    args = arguments()
    if args.plot:
        with open(args.file) as f:
            return plot(args.plot, json.load(f))
    results = run(args)
    steady, elastic = results["steady"], results["elastic"]
    loss, ranks = elastic["loss"], elastic["ranks"]
    print(
        f"loss {loss[0]:.3f} -> {loss[-1]:.3f} on {ranks[0]} to {ranks[-1]} ranks; "
        f"the curve without faults differs by {difference(steady, elastic):.1e}"
    )
    if args.out:
        with open(args.out, "w") as f:
            json.dump(results, f)


if __name__ == "__main__":
    main()
