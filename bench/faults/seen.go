package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lightpath/ocsctl/controller"
)

// happened waits for the first event of a kind, on a plane or AnyPlane, after the injection.
func (g *rig) happened(kind controller.EventKind, plane int,
	is func(controller.Event) bool) (found controller.Event, err error) {
	q := controller.Query{Plane: plane, Kinds: []controller.EventKind{kind}, Since: g.injectedAt.Add(-time.Millisecond)}
	err = wait(g.ctx, fmt.Sprintf("the history has that plane %d %s", plane, kind), patience, func() (bool, error) {
		events, err := g.operator.History(g.ctx, q)
		if err != nil {
			return false, nil // ask again
		}
		for _, e := range slices.Backward(events) {
			if is(e) {
				found = e
				return true, nil
			}
		}
		return false, nil
	})
	return found, err
}

// anyEvent accepts every event.
func anyEvent(controller.Event) bool { return true }

// status returns the state of a plane at its controller.
func (g *rig) status(plane int) (controller.PlaneSnapshot, error) {
	s, err := g.operator.Status(g.ctx)
	if err != nil {
		return controller.PlaneSnapshot{}, err
	}
	return s.Planes[plane], nil
}

// recovers waits until the ranks complete an operation after the injection. A pause before the operation does not
// count.
func (g *rig) recovers() error {
	return wait(g.ctx, "the ranks have results again", patience, func() (bool, error) {
		if at, ok := g.job.completed(g.injectedAt); ok {
			if at.start.Before(g.injectedAt) {
				at.start = g.injectedAt
			}
			g.Took = at.end.Sub(at.start)
			return true, nil
		}
		return false, g.job.running()
	})
}

// fails waits until every rank except but has failed with an error that contains all of words. A word "a|b" is a or b.
func (g *rig) fails(but []int, words ...string) error {
	last, err := g.job.awaitFailures(but...)
	if err != nil {
		return err
	}
	g.Took = last.Sub(g.injectedAt)
	g.Ranks = g.job.text(but...)
	for r, f := range g.job.failures() {
		for _, w := range words {
			if !slices.Contains(but, r) && !f.says(w) {
				return fmt.Errorf("faults: rank %d does not name %q: %s", r, w, f.text)
			}
		}
	}
	return nil
}

// warnings returns the warnings that ranks have logged, once each.
func (g *rig) warnings() ([]string, error) {
	files, err := filepath.Glob(g.path("log.*"))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for l := range strings.Lines(string(data)) {
			if _, text, ok := strings.Cut(strings.TrimSpace(l), "WARN "); ok && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all, nil
}

// warned waits until a rank has logged a warning with text.
func (g *rig) warned(text string) error {
	return wait(g.ctx, fmt.Sprintf("a rank warns of %q", text), patience, func() (bool, error) {
		all, err := g.warnings()
		for _, w := range all {
			if strings.Contains(w, text) {
				if g.Ranks == "" {
					g.Ranks = w
				}
				return true, err
			}
		}
		return false, err
	})
}
