#!/usr/bin/env python3
"""Draws the results of train.py --out: plot.py docs/torch.png "shared memory=shm.json" "two TCP planes=tcp.json" ...

Left the first file's loss curves, in the middle how far every way's curve is from the first way's, right the
step times. Needs matplotlib (Debian: python3-matplotlib)."""

import itertools
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"gloo:ddp": "#777777", "lightpath:ddp": "#1f5fbf", "lightpath:sharded": "#d9731a"}


def losses(axes, run):
    for way, r in run["ways"].items():
        behind = way.startswith("gloo")  # wide, so that what lies upon it leaves it visible
        axes.plot(r["loss"], label=way, color=COLOURS.get(way), linewidth=5 if behind else 1.5,
                  alpha=0.5 if behind else 1, linestyle=(0, (4, 4)) if way.endswith("sharded") else "-")  # fmt: skip
    axes.axhline(run["bigram_loss"], color="black", linewidth=0.8, linestyle=":")
    axes.text(len(r["loss"]), run["bigram_loss"] + 0.03, "pairs of characters (held out)", ha="right", fontsize=8)
    axes.set(xlabel="step", ylabel="training loss (nats per character)", title="The curves lie upon each other")
    axes.legend(frameon=False)


def differences(axes, runs):
    for (label, run), style in zip(runs.items(), ("-", "--", ":")):
        reference = next(iter(run["ways"].values()))["loss"]
        for way, r in list(run["ways"].items())[1:]:
            apart = itertools.accumulate((abs(x - y) / x for x, y in zip(reference, r["loss"])), max)
            apart = [max(x, 1e-12) for x in apart]  # 0 has no place on the axis
            axes.semilogy(apart, style, color=COLOURS.get(way), linewidth=1, label=f"{way}, {label}")
    axes.axhline(2**-23, color="black", linewidth=0.8, linestyle=":")
    axes.text(0, 2**-23 * 1.15, "one bit of a float", fontsize=8)
    axes.set(
        xlabel="step", ylabel="largest relative difference so far", title="Apart from Gloo's by", ylim=(1e-8, 1e-5)
    )
    axes.legend(frameon=False, fontsize=7)


def times(axes, runs):
    ways = list(next(iter(runs.values()))["ways"])
    width = 0.8 / len(ways)
    for i, way in enumerate(ways):
        at = [n + (i - (len(ways) - 1) / 2) * width for n in range(len(runs))]
        bars = axes.bar(
            at, [run["ways"][way]["step_ms"] for run in runs.values()], width, color=COLOURS.get(way), label=way
        )
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    axes.set_xticks(range(len(runs)), ["\n".join(label.rsplit(" ", 1)) for label in runs])
    axes.set(ylabel="median step (ms)", title="Step time, by turns in one run")


def main():
    out, runs = sys.argv[1], {}
    for argument in sys.argv[2:]:
        label, path = argument.split("=", 1)
        with open(path) as f:
            runs[label] = json.load(f)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.2), constrained_layout=True)
    losses(left, next(iter(runs.values())))
    differences(middle, runs)
    times(right, runs)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=80)


if __name__ == "__main__":
    main()
