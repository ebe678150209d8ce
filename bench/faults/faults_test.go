package faults

import (
	"context"
	"flag"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/bench/benchtest"
	"lightpath/ocsctl/kernel"
)

// atOnce is how many scenarios TestFaults plays at the same time. They wait for most of their time.
const atOnce = 6

// TestFaults plays every scenario. Bounds are those of a machine with other work: the scenarios disturb each other.
func TestFaults(t *testing.T) {
	bin := benchtest.Bin(t)
	if err := kernel.Check(); err != nil {
		t.Skipf("planes in the kernel cannot be built here: %v", err)
	}
	o := &Options{
		Lightpath: filepath.Join(bin, "lightpath"), Worker: filepath.Join(bin, "lightpath-rank"),
		Progress: func(string, ...any) {}, Slack: 10,
	}
	chosen := chosenBy(flag.Lookup("test.run").Value.String())
	results := playAll(t.Context(), o, chosen)
	for i := range chosen {
		t.Run(chosen[i].Name, func(t *testing.T) {
			r := <-results[i]
			t.Logf("injected: %s\nranks: %s\noperator: %s\ntook %v, %d operations, %d frames lost, %v in all",
				r.Injected, r.Ranks, r.Operator, r.Took, r.Operations, r.Lost, r.whole)
			if r.Problem != "" {
				t.Error(r.Problem)
			}
		})
	}
}

// chosenBy returns the scenarios that `go test -run pattern` runs. A pattern without a slash runs all.
func chosenBy(pattern string) []scenario {
	all := scenarios()
	_, name, found := strings.Cut(pattern, "/")
	if !found {
		return all
	}
	match, err := regexp.Compile(name)
	if err != nil {
		return all
	}
	return slices.DeleteFunc(all, func(s scenario) bool { return !match.MatchString(s.Name) })
}

// played is the result of a scenario and the time that it took with its set-up.
type played struct {
	Result
	whole time.Duration
}

// playAll plays scenarios, atOnce at a time, and returns a channel for each result.
func playAll(ctx context.Context, o *Options, all []scenario) []chan played {
	results := make([]chan played, len(all))
	slots := make(chan struct{}, atOnce)
	for i := range all {
		results[i] = make(chan played, 1)
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			began := time.Now()
			r := all[i].run(ctx, o)
			results[i] <- played{r, time.Since(began)}
		}()
	}
	return results
}
