package rewire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// fake is a controller whose planes are held for some tries and may fail.
type fake struct {
	sync.Mutex
	held   map[int]int // tries until a plane is free; below 0: never
	broken map[int]error
	maps   map[int]circuit.Permutation
	off    map[int]bool
	most   int // planes that were out of service at once
}

func newFake() *fake {
	return &fake{held: map[int]int{}, broken: map[int]error{}, maps: map[int]circuit.Permutation{}, off: map[int]bool{}}
}

func (f *fake) Set(_ context.Context, plane int, target circuit.Permutation, _ string) error {
	f.Lock()
	defer f.Unlock()
	if !f.off[plane] {
		return errors.New("moved while in service")
	}
	if f.held[plane] != 0 {
		f.held[plane]--
		return controller.ErrHeld
	}
	if err := f.broken[plane]; err != nil {
		return err
	}
	f.maps[plane] = target
	return nil
}

func (f *fake) Disable(_ context.Context, plane int, _, _ string) error {
	f.Lock()
	defer f.Unlock()
	f.off[plane] = true
	f.most = max(f.most, len(f.off))
	return nil
}

func (f *fake) Enable(_ context.Context, plane int, _ string) error {
	f.Lock()
	defer f.Unlock()
	delete(f.off, plane)
	return nil
}

func ring(planes ...int) Stage {
	all := Stage{}
	for _, p := range planes {
		all[p] = circuit.Shift(4, p+1)
	}
	return all
}

// names are those of so many planes.
func names(planes int) (all []string) {
	for p := range planes {
		all = append(all, fmt.Sprint("p", p))
	}
	return all
}

func TestRun(t *testing.T) {
	f := newFake()
	f.held[1], f.held[3] = 5, 2
	var done []int
	o := Options{Planes: names(4), Retry: time.Microsecond, Done: func(s int) { done = append(done, s) }}
	require.NoError(t, Run(t.Context(), f, []Stage{ring(0, 1), ring(2, 3), nil}, o))
	for p := range 4 {
		if !f.maps[p].Equal(circuit.Shift(4, p+1)) {
			t.Errorf("plane %d has %v", p, f.maps[p])
		}
	}
	if len(f.off) != 0 || f.most != 2 || !slices.Equal(done, []int{0, 1, 2}) {
		t.Errorf("out of service %v, at most %d, done %v", f.off, f.most, done)
	}
}

func TestAPlaneIsAlwaysLeft(t *testing.T) {
	for planes, most := range map[int]int{2: 1, 4: 2, 6: 4, 7: 5, 8: 4} {
		f := newFake()
		var all []int
		for p := range planes {
			all = append(all, p)
		}
		require.NoError(t, Run(t.Context(), f, []Stage{ring(all...)}, Options{Planes: names(planes)}))
		if f.most != most || len(f.maps) != planes {
			t.Errorf("%d planes: %d were out of service at once, want %d; %d moved", planes, f.most, most, len(f.maps))
		}
	}
	if err := Run(t.Context(), newFake(), []Stage{ring(0)}, Options{Planes: names(1)}); err == nil ||
		!strings.Contains(err.Error(), "plane p0 is the only one") {
		t.Error(err)
	}
}

func TestFailures(t *testing.T) {
	f := newFake()
	stuck := errors.New("mirror 3 is stuck")
	f.broken[1] = stuck
	err := Run(t.Context(), f, []Stage{ring(0, 1), ring(2)}, Options{Planes: names(4)})
	if !errors.Is(err, stuck) || !strings.Contains(err.Error(), "stage 1 of 2: plane p1: ") {
		t.Error(err)
	}
	if !f.off[1] || len(f.off) != 1 || f.maps[2] != nil {
		t.Errorf("out of service %v, maps %v", f.off, f.maps)
	}

	f = newFake() // held for ever: given up, and as it was
	f.held[1] = -1
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = Run(ctx, f, []Stage{ring(1)}, Options{Planes: names(4)})
	if !errors.Is(err, controller.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) || len(f.off) != 0 {
		t.Errorf("%v; out of service %v", err, f.off)
	}

	for want, stage := range map[string]Stage{
		"plane 4 is outside 0..3":      ring(4),
		"plane p1: map[1]: port 2 alr": {1: circuit.Permutation{2, 2, 0}},
	} {
		f := newFake()
		if err := Run(t.Context(), f, []Stage{ring(0), stage}, Options{Planes: names(4)}); err == nil ||
			!strings.Contains(err.Error(), "stage 2: "+want) || f.most > 0 {
			t.Errorf("%v, want %q before anything moves", err, want)
		}
	}
}
