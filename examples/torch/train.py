#!/usr/bin/env python3
"""Trains a character model of English on several ranks, once or, step by step in turn, in several ways.

    launch.py -n 4 train.py --ways gloo:ddp,lightpath:ddp,lightpath:sharded --out run.json

A way is a backend and what is done over it: ddp, sharded (sharding.py), fsdp (torch 2). The model is Bengio's of 2003:
characters embedded, two hidden layers. Every way trains its own copy from the same seed with the same batches, so
the loss curves are the same but for the order in which gradients are added up. Two ways train other models
(parallel.py): with moe, experts are the second hidden layer; with pipeline, each of four ranks has a layer.

With --device cuda the models are on the first GPU, which all ranks share, and torch's own backends take part:
--ways gloo:ddp,nccl:ddp,nccl:fsdp, NCCL being whatever libnccl.so.2 is preloaded."""

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import lightpath.torch  # noqa: F401, registers the backend
import text
from parallel import Experts, Pipeline
from sharding import Sharded


SEED = 1  # of models and batches


class Model(nn.Module):
    def __init__(self, characters, hidden):
        super().__init__()
        self.embedding = nn.Embedding(characters, 24)
        self.first = nn.Linear(24 * text.CONTEXT, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, characters)

    def forward(self, x):
        for i in range(len(self.layers())):
            x = self.stage(i, x)
        return x

    def stage(self, i, x):
        """A layer and what follows it: contexts -> embedded characters -> hidden -> hidden -> scores."""
        x = self.layers()[i](x)
        return x.flatten(1) if i == 0 else x if i == 3 else torch.tanh(x)

    def layers(self):
        return [self.embedding, self.first, self.second, self.out]

    def widths(self):
        """What each layer's stage returns has so many columns."""
        return [self.first.in_features, self.first.out_features, self.out.in_features, self.out.out_features]


class Trainer:
    """One model, trained in one way."""

    def __init__(self, args, way, characters):
        backend, mode = way.split(":")
        group = dist.new_group(backend=backend)
        torch.manual_seed(SEED)
        model = Model(characters, args.hidden).to(args.device)
        if mode == "moe":
            model.second = Experts(args.hidden, group)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.finish = lambda: None
        self.backward = self._backward
        self.device, self.settle = args.device, torch.cuda.synchronize if args.device == "cuda" else lambda: None
        if mode in ("ddp", "moe"):
            if mode == "moe":
                own = [f"second.expert.{name}" for name, _ in model.second.expert.named_parameters()]
                nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, own)
                self.finish = model.second.finish_gradients
            self.model = nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=args.bucket_mb)
            trained = self.model.parameters()
        elif mode == "pipeline":
            self.model = Pipeline(model, group)
            trained, self.backward = self.model.mine.parameters(), self.model.train_step
        elif mode == "sharded":
            self.model = Sharded(model, model.layers(), group)
            trained, self.finish = self.model.shards(), self.model.finish_gradients
        else:
            self.model = fully_sharded(model, group, args.device)
            trained = self.model.parameters()
        self.optimizer = torch.optim.Adam(trained, lr=args.rate)
        self.losses, self.begins, self.seconds = [], [], []

    def _backward(self, contexts, following):
        loss = nn.functional.cross_entropy(self.model(contexts), following)
        loss.backward()
        return loss.detach()

    def step(self, contexts, following):
        self.begins.append(time.perf_counter())
        self.optimizer.zero_grad(set_to_none=False)
        self.losses.append(self.backward(contexts, following))
        self.finish()
        self.optimizer.step()
        self.settle()
        self.seconds.append(time.perf_counter() - self.begins[-1])

    def evaluate(self, held_out, count=2048):
        """Loss and accuracy on held-out characters. Every rank takes part: sharded parameters are gathered."""
        spread = torch.linspace(0, len(held_out) - 1, count).long()
        contexts = torch.stack([held_out[i][0] for i in spread])
        following = torch.stack([held_out[i][1] for i in spread]).to(self.device)
        with torch.no_grad():
            scores = self.model(contexts.to(self.device))
        loss = nn.functional.cross_entropy(scores, following).item()
        return loss, (scores.argmax(1) == following).float().mean().item()


def fully_sharded(model, group, device):
    try:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        raise SystemExit(f"train.py: FSDP as it is used here is not in torch {torch.__version__}; use sharded")
    mesh = DeviceMesh.from_group(group, device)
    for layer in model.layers():
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(args):
    """One dictionary of results, the same on every rank but for times."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data, held_out, characters = text.load()
    ways = args.ways.split(",")
    together = [way.endswith(":pipeline") for way in ways]
    if any(together) and not all(together):
        raise SystemExit("train.py: pipeline trains with the same batch on all ranks, other ways do not")
    one = {"num_replicas": 1, "rank": 0} if any(together) else {}
    sampler = torch.utils.data.DistributedSampler(data, seed=SEED, **one)
    loader = torch.utils.data.DataLoader(data, batch_size=args.batch, sampler=sampler, drop_last=True)
    trainers = {way: Trainer(args, way, characters) for way in ways}
    batches = iter(loader)
    for step in range(args.steps):
        contexts, following = next(batches)
        for way in ways if step % 2 == 0 else reversed(ways):  # the second finds caches warm
            if len(ways) > 1:
                dist.barrier()
            trainers[way].step(contexts.to(args.device), following.to(args.device))
    results = {}
    for way, trainer in trainers.items():
        losses = torch.stack(trainer.losses).double().cpu()
        dist.all_reduce(losses)
        loss, accuracy = trainer.evaluate(held_out)
        results[way] = {
            "loss": (losses / size).tolist(),
            "step_ms": 1e3 * statistics.median(trainer.seconds[len(trainer.seconds) // 5 :]),
            "iterations": [b - a for a, b in zip(trainer.begins, trainer.begins[1:])],
            "held_out_loss": loss,
            "accuracy": accuracy,
        }
    return {
        "torch": torch.__version__, "ranks": size, "rank": rank, "batch": args.batch * size,
        "parameters": next(iter(trainers.values())).parameters, "characters": characters,
        "bigram_loss": text.bigram_loss(data, held_out, characters), "ways": results,
    }  # fmt: skip


def difference(a, b):
    """The largest relative difference between two loss curves."""
    return max(abs(x - y) / max(abs(x), abs(y)) for x, y in zip(a["loss"], b["loss"]))


def arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--ways",
        default="lightpath:ddp",
        help="backend:ddp|sharded|fsdp|moe|pipeline,...; others are compared with the first",
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64, help="per rank")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rate", type=float, default=5e-3)
    parser.add_argument("--bucket-mb", type=float, default=1)
    parser.add_argument(
        "--device", default="cpu", choices=["cpu", "cuda"], help="where models are; cuda: all ranks on the first GPU"
    )
    parser.add_argument("--out", help="JSON file for rank 0's results")
    return parser.parse_args(argv)


def main(argv=None):
    args = arguments(argv)
    torch.set_num_threads(1)
    if args.device == "cuda":
        torch.cuda.set_device(0)
    # The default group synchronizes ranks and adds results up. Each way trains over a group of its own.
    dist.init_process_group("gloo")
    results = train(args)
    if dist.get_rank() == 0:
        report(results)
        if args.out:
            with open(args.out, "w") as f:
                json.dump(results, f)
    dist.destroy_process_group()


def report(results):
    first = next(iter(results["ways"].values()))
    print(f"{results['parameters']} parameters, {results['ranks']} ranks, torch {results['torch']}")
    print(f"held-out loss by pairs of characters alone: {results['bigram_loss']:.3f}")
    for way, r in results["ways"].items():
        print(
            f"{way:18} {r['step_ms']:7.1f} ms/step  loss {r['loss'][0]:.3f} -> {r['loss'][-1]:.3f}  "
            f"held out {r['held_out_loss']:.3f}, {r['accuracy']:.1%} right  curve differs by {difference(first, r):.1e}"
        )


if __name__ == "__main__":
    main()
