// A search over ports: words that a port, its rank, its host or its job must have, all of them.

// parse reads a search. A number or a range (16-31) finds ports and jobs; port:, job: and rank: find in one of them.
export function parse(text) {
  return text.trim().toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const [, kind, rest] = /^(?:(port|rank|job|host):)?(.*)$/.exec(word);
    const [, low, high] = /^(\d+)(?:-(\d+))?$/.exec(rest) ?? [];
    return { kind, text: rest, low: low === undefined ? NaN : Number(low), high: Number(high ?? low) };
  }).filter((w) => w.text);
}

// find returns the ports that a search finds; null: nothing is searched.
export function find(words, status) {
  if (!words.length) return null;
  const jobs = jobsByPort(status);
  return new Set(status.ports.map((p) => p.port).filter((port) => words.every((w) => {
    const inRange = port >= w.low && port <= w.high, who = (status.ports[port].who ?? "").toLowerCase();
    const ofJob = (jobs.get(port) ?? []).some((job) => job.id.toLowerCase() === w.text || (job.name ?? "").toLowerCase().includes(w.text));
    switch (w.kind) {
      case "port": case "rank": return inRange;
      case "job": return ofJob;
      case "host": return who.includes(w.text);
    }
    return inRange || ofJob || (Number.isNaN(w.low) && who.includes(w.text));
  })));
}

export function jobsByPort(status) {
  const jobs = new Map();
  for (const job of status.jobs ?? []) for (const port of job.ports) jobs.set(port, [...(jobs.get(port) ?? []), job]);
  return jobs;
}
