"""Two more ways to divide a model over ranks: experts, between which tokens travel, and stages of a pipeline."""

import collections

import torch
import torch.distributed as dist
from torch import nn

MICRO_BATCHES = 4  # of a step, in a pipeline


class Exchange(torch.autograd.Function):
    """Rows to other ranks: sent[r] rows to rank r, received[r] rows from it. Gradients travel back."""

    @staticmethod
    def forward(context, rows, received, sent, group):
        context.back = sent, received, group
        arrived = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(arrived, rows.contiguous(), received, sent, group=group)
        return arrived

    @staticmethod
    def backward(context, gradient):
        return Exchange.forward(context, gradient, *context.back), None, None, None


class Experts(nn.Module):
    """A layer of one expert per rank. A gate sends each row to one of them, so loads are uneven and change."""

    def __init__(self, width, group):
        super().__init__()
        self.group, self.size = group, dist.get_world_size(group)
        self.gate = nn.Linear(width, self.size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(dist.get_rank(group))
            self.expert = nn.Linear(width, width)

    def forward(self, rows):
        weights, choice = self.gate(rows).softmax(1).max(1)
        order = choice.argsort(stable=True)
        sent = choice.bincount(minlength=self.size)
        dist.all_to_all_single(received := torch.empty_like(sent), sent, group=self.group)
        sent, received = sent.tolist(), received.tolist()
        inputs = Exchange.apply(rows[order], received, sent, self.group)
        outputs = Exchange.apply(self.expert(inputs), sent, received, self.group)
        return outputs[order.argsort()] * weights[:, None]

    def finish_gradients(self):
        """After backward: the expert's gradients are sums over the rows of all ranks, others are means."""
        for p in self.expert.parameters():
            p.grad /= self.size


class Pipeline(nn.Module):
    """Each rank has one stage of a model. Micro-batches alternate one forward and one backward (1F1B)."""

    def __init__(self, model, group):
        super().__init__()
        self.rank, self.size, self.group = dist.get_rank(group), dist.get_world_size(group), group
        if self.size != len(model.layers()):
            raise SystemExit(f"train.py: a pipeline of {len(model.layers())} stages needs as many ranks")
        self.first, self.last = self.rank == 0, self.rank == self.size - 1
        self.model, self.mine = model, model.layers()[self.rank]
        self.width = 0 if self.first else model.widths()[self.rank - 1]

    def _from_before(self, contexts):
        if self.first:
            return contexts
        rows = torch.empty(len(contexts), self.width)
        dist.recv(rows, self.rank - 1, group=self.group)
        return rows.requires_grad_(torch.is_grad_enabled())

    def forward(self, contexts):
        rows = self.model.stage(self.rank, self._from_before(contexts))
        if not self.last:
            dist.send(rows, self.rank + 1, group=self.group)
            rows = torch.empty(len(contexts), self.model.widths()[-1])
        dist.broadcast(rows, self.size - 1, group=self.group)
        return rows

    def train_step(self, contexts, following):
        """Forward and backward of a batch, the same one on all ranks. The mean over ranks of what it returns is the
        batch's loss."""
        kept, sending, total = collections.deque(), [], torch.zeros(())
        ahead = min(MICRO_BATCHES, self.size - 1 - self.rank)

        def backward():
            rows, result = kept.popleft()
            gradient = None
            if not self.last:
                gradient = torch.empty_like(result)
                dist.recv(gradient, self.rank + 1, group=self.group)
            result.backward(gradient)
            if not self.first:
                sending.append(dist.isend(rows.grad, self.rank - 1, group=self.group))

        for k, (part, targets) in enumerate(zip(contexts.chunk(MICRO_BATCHES), following.chunk(MICRO_BATCHES))):
            rows = self._from_before(part)
            result = self.model.stage(self.rank, rows)
            if self.last:
                result = nn.functional.cross_entropy(result, targets) / MICRO_BATCHES
                total += result.detach()
            else:
                sending.append(dist.isend(result.detach(), self.rank + 1, group=self.group))
            kept.append((rows, result))
            if k >= ahead:
                backward()
        while kept:
            backward()
        for work in sending:
            work.wait()
        return total * self.size
