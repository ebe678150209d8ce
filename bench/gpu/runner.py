"""Commands with a limit and a log, and the time that is left for all of them."""

import contextlib
import os
import re
import signal
import subprocess
import time

HARNESS = "lightpath: bench: "
WRONG = re.compile(r"error|fail|wrong|^lightpath", re.IGNORECASE)


class Budget:
    """Seconds from now that everything together may take."""

    def __init__(self, seconds, clock=time.monotonic):
        self._clock, self._end = clock, clock() + seconds

    def left(self):
        return self._end - self._clock()


class Outcome:
    """How a command ended. code is None if it ran past its limit. cut: the limit was less than asked for, because the
    part had no more time."""

    def __init__(self, code, log, seconds, cut=False):
        self.code, self.log, self.seconds, self.cut = code, log, seconds, cut

    @property
    def hung(self):
        return self.code is None and not self.cut

    @property
    def ok(self):
        return self.code == 0

    def text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def why(self):
        """One line about the failure: the harness's, else the first one with an error, else the last one."""
        lines = [line.strip() for line in self.text().splitlines()[1:] if line.strip()]
        said = [line for line in lines if line.startswith(HARNESS)] or [line for line in lines if WRONG.search(line)]
        words = (said[:1] or lines[-1:] or ["no output"])[0][:200]
        if self.code is None:
            return f"not done after {self.seconds:.0f} s: {words}"
        return f"exit status {self.code}: {words}"


_running = set()  # the sessions of commands


def end_all(number, _frame):
    """Handles signals that end the check. It also ends the commands of the check, which have their own sessions."""
    for pid in list(_running):
        _end(pid)
    os._exit(128 + number)


def _end(pid):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def run(command, log, limit, env=None, cwd=None, cut=False):
    """Runs a command in a session of its own. After the limit (in seconds) the whole session is killed. cut: the
    command asked for a longer limit."""
    os.makedirs(os.path.dirname(log), exist_ok=True)
    begun = time.monotonic()
    with open(log, "w") as out:
        out.write(f"$ {' '.join(map(str, command))}\n")
        out.flush()
        if limit <= 0:
            out.write("no time was left for it\n")
            return Outcome(None, log, 0, cut=True)
        try:
            process = subprocess.Popen(
                [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(env or {})}, cwd=cwd,
            )  # fmt: skip
        except OSError as error:
            out.write(f"{error}\n")
            return Outcome(127, log, 0)
        _running.add(process.pid)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process.pid)  # also processes that the command has left behind
            process.wait()
            _running.discard(process.pid)
    return Outcome(code, log, time.monotonic() - begun, cut)
