"""Training with sharded parameters, in a hundred lines of torch.distributed.

Between steps a rank holds 1/n of every unit's parameters and of its optimizer's state. A step gathers the units
(the later ones while the earlier ones compute), and reduces and scatters their gradients as backward finishes
them. So it makes the calls of FSDP; unlike FSDP it keeps the memory of gathered units from step to step.
FSDP itself wants a GPU in torch 1.13; with later versions use train.py's way fsdp."""

import torch
import torch.distributed as dist


class Unit:
    """A module whose parameters are gathered and scattered as one flat tensor."""

    def __init__(self, module, group):
        self.module, self.group = module, group
        self.size = dist.get_world_size(group)
        self.parameters = list(module.parameters())
        count = sum(p.numel() for p in self.parameters)
        self.padded = -(-count // self.size) * self.size
        self.full = torch.zeros(self.padded)
        self.gradient = torch.zeros(self.padded)
        mine = self.padded // self.size
        rank = dist.get_rank(group)
        offset = 0
        for p in self.parameters:
            n = p.numel()
            self.full[offset : offset + n] = p.detach().reshape(-1)
            p.data = self.full[offset : offset + n].view(p.shape)
            p.grad = self.gradient[offset : offset + n].view(p.shape)
            offset += n
        self.shard = torch.nn.Parameter(self.full[rank * mine : (rank + 1) * mine].clone())
        self.shard.grad = torch.zeros(mine)
        self.arriving = self.leaving = None
        self.missing = 0
        module.register_forward_pre_hook(lambda *_: self.wait())
        for p in self.parameters:
            # Where the gradient of a parameter has been added up, in every version of torch.
            node = p.expand_as(p).grad_fn.next_functions[0][0]
            node.register_hook(lambda *_: self._one_gradient())
            setattr(p, "_accumulates", node)  # keeps the node alive, and so its hook

    def gather(self):
        self.gradient.zero_()
        self.missing = len(self.parameters)
        self.arriving = _gather(self.full, self.shard.detach(), group=self.group, async_op=True)

    def wait(self):
        if self.arriving is not None:
            self.arriving.wait()
            self.arriving = None

    def _one_gradient(self):
        self.missing -= 1
        if self.missing == 0:
            self.leaving = _scatter(self.shard.grad, self.gradient, group=self.group, async_op=True)

    def finish(self):
        self.leaving.wait()
        self.shard.grad /= self.size


class Sharded(torch.nn.Module):
    """module with each of its units, submodules that have all its parameters between them, sharded over a group."""

    def __init__(self, module, units, group):
        super().__init__()
        self.module = module
        # All ranks begin with rank 0's parameters.
        for p in module.parameters():
            dist.broadcast(p.detach(), dist.distributed_c10d.get_global_rank(group, 0), group=group)
        self._units = [Unit(u, group) for u in units]

    def shards(self):
        """What an optimizer is to be given."""
        return [u.shard for u in self._units]

    def forward(self, *inputs):
        for u in self._units:
            u.gather()
        return self.module(*inputs)

    def finish_gradients(self):
        """After backward, before the optimizer's step."""
        for u in self._units:
            u.finish()


# Their names before torch 2.
_gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
_scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
