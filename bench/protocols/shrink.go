package protocols

import (
	"context"
	"slices"
)

// freshSeeds is how many seeds are tried in a smaller world. There the choices of the larger one mean other decisions.
const freshSeeds = 16

// shrinker is the state of a search, with the simplest simulation so far.
type shrinker struct {
	ctx      context.Context
	run      Runner
	left     int // runs
	made     int
	progress func(made, choices int)

	best Simulation // with choices
	last *Result    // of best
}

// Shrink looks for a simpler run that violates the invariant of s: a smaller world, fewer choices, lower choices. It
// makes at most runs runs, ends early with ctx, and returns the simplest simulation it has found. It is deterministic
// unless ctx ends it. Shrink calls progress, if not nil, with the runs made and the length of the best choices.
func Shrink(ctx context.Context, run Runner, s *Simulation, runs int, progress func(made, choices int)) *Simulation {
	h := &shrinker{ctx: ctx, run: run, left: max(runs, 1), progress: progress, best: *s}
	h.best.Config = s.Config.complete()
	if !h.try(h.best.Config, s.Chooser(), func(made []int) bool { return true }) {
		return s // it violates nothing, or another invariant
	}
	h.shrinkConfig()
	for h.shrinkChoices() {
	}
	return &h.best
}

// try makes a run, and keeps it as the best one if it violates the same invariant and accept agrees to its choices.
func (h *shrinker) try(cfg Config, c Chooser, accept func(made []int) bool) bool {
	if h.left == 0 || h.ctx.Err() != nil {
		return false
	}
	h.left--
	h.made++
	rec := &recorder{Chooser: c}
	r := h.run.Make(cfg, rec)
	if h.progress != nil {
		h.progress(h.made, len(h.best.Choices))
	}
	made := trimZeros(rec.made)
	if r.Violation == nil || h.best.Violation != "" && InvariantOf(r.Violation) != h.best.Violation || !accept(made) {
		return false
	}
	h.best = Simulation{Config: cfg, Choices: append([]int{}, made...), Violation: InvariantOf(r.Violation)}
	h.last = r
	return true
}

// shrinkConfig makes the world smaller, one field after the other.
func (h *shrinker) shrinkConfig() {
	smaller := func(change func(*Config)) bool {
		cfg := h.best.Config
		if change(&cfg); cfg.Check() != nil {
			return false
		}
		if h.try(cfg, Replay(h.best.Choices), func([]int) bool { return true }) {
			return true
		}
		for seed := range uint64(freshSeeds) {
			if h.try(cfg, Random(seed), func([]int) bool { return true }) {
				return true
			}
		}
		return false
	}
	for i, field := range h.best.Config.Sizes() {
		if field.Name == "operations" && h.last.Operations >= field.Low && h.last.Operations < *field.Value {
			smaller(func(c *Config) { *c.Sizes()[i].Value = h.last.Operations })
		}
		for { // best changes with each success
			now := *h.best.Config.Sizes()[i].Value
			if now > field.Low && smaller(func(c *Config) { *c.Sizes()[i].Value = max(now/2, field.Low) }) {
				continue
			}
			if now <= field.Low || !smaller(func(c *Config) { *c.Sizes()[i].Value = now - 1 }) {
				break
			}
		}
	}
	h.shrinkFaults(smaller)
}

// shrinkFaults forbids faults that the violation does not need.
func (h *shrinker) shrinkFaults(smaller func(func(*Config)) bool) {
	var happened []string
	for _, cell := range h.last.Coverage.Cells() {
		if !slices.Contains(happened, cell.Fault) {
			happened = append(happened, cell.Fault)
		}
	}
	if len(happened) > 0 && (len(h.best.Config.Faults) == 0 || len(happened) < len(h.best.Config.Faults)) {
		smaller(func(c *Config) { c.Faults = happened })
	}
	for i := len(h.best.Config.Faults) - 1; i >= 0 && len(h.best.Config.Faults) > 1; i-- {
		smaller(func(c *Config) { c.Faults = slices.Delete(slices.Clone(c.Faults), i, i+1) })
	}
}

// shrinkChoices deletes spans of choices, sets them to 0, and lowers single ones. It reports whether that helped.
func (h *shrinker) shrinkChoices() (helped bool) {
	replay := func(choices []int) bool {
		if !simpler(trimZeros(choices), h.best.Choices) {
			return false
		}
		return h.try(h.best.Config, Replay(choices), func(made []int) bool { return simpler(made, h.best.Choices) })
	}
	for size := max(len(h.best.Choices)/2, 1); size >= 1; size /= 2 {
		for end := len(h.best.Choices); end > 0; end -= size {
			end = min(end, len(h.best.Choices))
			start := max(end-size, 0)
			without := slices.Delete(slices.Clone(h.best.Choices), start, end)
			zeroed := slices.Clone(h.best.Choices)
			clear(zeroed[start:end])
			if replay(without) || replay(zeroed) {
				helped = true
			}
		}
	}
	for i := len(h.best.Choices) - 1; i >= 0; i-- {
		for i < len(h.best.Choices) && h.best.Choices[i] > 0 {
			half, less := slices.Clone(h.best.Choices), slices.Clone(h.best.Choices)
			half[i] /= 2
			less[i]--
			if !replay(half) && !replay(less) {
				break
			}
			helped = true
		}
	}
	return helped && h.left > 0 && h.ctx.Err() == nil
}

// simpler reports whether the choices a are simpler than b: fewer, or as many and lower from the first that differs.
func simpler(a, b []int) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return slices.Compare(a, b) < 0
}

// trimZeros removes the last choices that are 0, which [Replay] makes anyway.
func trimZeros(choices []int) []int {
	for len(choices) > 0 && choices[len(choices)-1] == 0 {
		choices = choices[:len(choices)-1]
	}
	return choices
}
