"""Rows of results, and the table that they make."""

import dataclasses

OK, FAILED, SHORT, SKIPPED = "ok", "FAILED", "short", "skipped"


@dataclasses.dataclass
class Row:
    """One result. A number may have a limit, the perfect value, and a required share of it."""

    part: str
    what: str
    status: str = OK
    number: float | None = None
    unit: str = ""
    limit: float | None = None
    asked: float | None = None
    note: str = ""

    def __post_init__(self):
        if self.status == OK and self.asked is not None and (self.fraction is None or self.fraction < self.asked):
            self.status = SHORT
            self.note = f"{self.asked:.0%} is asked for" + (f"; {self.note}" if self.note else "")

    @property
    def fraction(self):
        """How much of the limit was reached. Of times, which have units of time, less is more."""
        if self.number is None or not self.limit or not self.number:
            return None
        return self.limit / self.number if self.unit in ("us", "ms", "s") else self.number / self.limit

    def cells(self):
        return [
            self.part, self.what, self.status,
            "" if self.number is None else f"{number(self.number)} {self.unit}".strip(),
            "" if self.limit is None else number(self.limit),
            "" if self.fraction is None else f"{self.fraction:.0%}", self.note,
        ]  # fmt: skip


HEAD = ["part", "what", "result", "number", "limit", "fraction", "remarks"]


def number(value):
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def failed(rows):
    """Whether the check has failed. Skipped rows are no failure."""
    return any(row.status in (FAILED, SHORT) for row in rows)


def aligned(table):
    """The lines of a table of cells for a terminal."""
    widths = [max(map(len, column)) for column in zip(*table)]
    return ["  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in table]


def piped(table):
    """The lines of a table of cells in Markdown. The first line of cells is the head."""
    lines = ["| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in table]
    return [lines[0], "|" + "---|" * len(table[0]), *lines[1:]]


def text(rows):
    head, *lines = aligned([HEAD, *(row.cells() for row in rows)])
    return "\n".join([head, "-" * len(head), *lines])


def markdown(rows):
    return "\n".join(piped([HEAD, *(row.cells() for row in rows)]))
