"""A real data set that every Python has: its language reference, half a megabyte of English prose and
code (pydoc_data.topics, what help("if") prints), as contexts of characters and the character that follows."""

import math
import pydoc_data.topics

import torch

CONTEXT = 8
HELD_OUT = 10  # every tenth topic is kept from training


def load():
    """Training and held-out Text, and the number of different characters."""
    topics = pydoc_data.topics.topics
    names = sorted(topics)
    alphabet = {c: i for i, c in enumerate(sorted({c for n in names for c in topics[n]}))}

    def text(keep):
        characters = "\n".join(topics[n] for i, n in enumerate(names) if keep(i % HELD_OUT == 0))
        return Text(torch.tensor([alphabet[c] for c in characters]))

    return text(lambda held: not held), text(lambda held: held), len(alphabet)


class Text(torch.utils.data.Dataset):
    """Item i: the characters i to i + CONTEXT - 1, and the next one."""

    def __init__(self, codes):
        self.codes = codes

    def __len__(self):
        return len(self.codes) - CONTEXT

    def __getitem__(self, i):
        return self.codes[i : i + CONTEXT], self.codes[i + CONTEXT]


def bigram_loss(train, held_out, characters):
    """Mean cross entropy, in nats, of predicting each held-out character by how often it follows the one
    before it in the training text, each pair counted once more than seen: what any trained model must beat."""
    pairs = train.codes[:-1] * characters + train.codes[1:]
    counts = torch.bincount(pairs, minlength=characters**2).reshape(characters, characters) + 1.0
    logs = (counts / counts.sum(1, keepdim=True)).log()
    loss = -logs[held_out.codes[:-1], held_out.codes[1:]].mean().item()
    assert math.isfinite(loss)
    return loss
