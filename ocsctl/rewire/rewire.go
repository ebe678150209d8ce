// Package rewire executes a plan of a job-level topology: it sets new maps of planes in stages, while communicators use
// the other planes.
//
// Layer: ocsctl. It knows planes and permutations, neither pods nor jobs.
package rewire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// Operator is the part of the controller in charge that a stage needs. *rpc.Operator is one.
type Operator interface {
	Set(ctx context.Context, plane int, target circuit.Permutation, who string) error
	Disable(ctx context.Context, plane int, reason, who string) error
	Enable(ctx context.Context, plane int, who string) error
}

// Stage holds the maps that are set together, by plane.
type Stage = map[int]circuit.Permutation

// Options of [Run].
type Options struct {
	Planes []string // names of the fabric's planes; required
	Who    string   // for the history
	// Retry is how long to wait for a plane that is in use before asking again; default 2ms.
	Retry time.Duration
	// Done, unless nil, is called after each stage.
	Done func(stage int)
}

// failed names the plane of an error: that of a lost connection does not.
func (o *Options) failed(plane int, err error) error {
	return fmt.Errorf("plane %s: %w", o.Planes[plane], err)
}

// Run executes stages in order. It takes the planes of a stage out of service for new operations. It gives each plane
// its map as soon as the operation that holds the plane has ended, and puts all back. Meanwhile communicators use the
// other planes. Run divides a stage of all planes of the fabric in two, since an operation must have a plane; it
// refuses a stage of the only plane. After an error, the planes that did not get their map are out of service, and the
// others of the stage are in service again. Run begins no later stage.
func Run(ctx context.Context, op Operator, stages []Stage, o Options) error {
	if o.Retry == 0 {
		o.Retry = 2 * time.Millisecond
	}
	for s, stage := range stages {
		if err := check(stage, o.Planes); err != nil {
			return fmt.Errorf("rewire: stage %d: %w", s+1, err)
		}
	}
	for s, stage := range stages {
		for _, part := range parts(stage, len(o.Planes)) {
			if err := run(ctx, op, part, &o, s+1); err != nil {
				return fmt.Errorf("rewire: stage %d of %d: %w", s+1, len(stages), err)
			}
		}
		if o.Done != nil {
			o.Done(s)
		}
	}
	return nil
}

// check returns an error for the first plane that cannot be changed.
func check(stage Stage, names []string) error {
	for _, plane := range slices.Sorted(maps.Keys(stage)) {
		switch {
		case plane < 0 || plane >= len(names):
			return fmt.Errorf("plane %d is outside 0..%d", plane, len(names)-1)
		case len(names) == 1:
			return fmt.Errorf("plane %s is the only one: nothing could run meanwhile", names[plane])
		}
		if err := stage[plane].Validate(len(stage[plane])); err != nil {
			return fmt.Errorf("plane %s: map%w", names[plane], err)
		}
	}
	return nil
}

// parts divides a stage of all planes. If there are more than two planes, planes 2j and 2j+1 stay together, as
// interleaved planes must.
func parts(stage Stage, planes int) []Stage {
	if len(stage) < planes || planes == 0 {
		return []Stage{stage}
	}
	half := planes / 2
	if planes > 2 {
		half = max(planes/4*2, 2)
	}
	low, high := Stage{}, Stage{}
	for plane, m := range stage {
		if plane < half {
			low[plane] = m
		} else {
			high[plane] = m
		}
	}
	return []Stage{low, high}
}

// run executes one stage that leaves at least one plane in service.
func run(ctx context.Context, op Operator, stage Stage, o *Options, number int) error {
	var closed []int // planes taken out of service
	for _, plane := range slices.Sorted(maps.Keys(stage)) {
		if err := op.Disable(ctx, plane, fmt.Sprintf("rewiring, stage %d", number), o.Who); err != nil {
			return errors.Join(o.failed(plane, err), reopen(ctx, op, closed, o))
		}
		closed = append(closed, plane)
	}
	moved := make([]error, len(closed))
	var wg sync.WaitGroup
	for i, plane := range closed {
		wg.Go(func() { moved[i] = set(ctx, op, plane, stage[plane], o) })
	}
	wg.Wait()
	var sound []int
	var errs []error
	for i, plane := range closed {
		if moved[i] != nil {
			errs = append(errs, o.failed(plane, moved[i]))
		}
		if moved[i] == nil || errors.Is(moved[i], controller.ErrHeld) { // a plane that has not moved keeps its map
			sound = append(sound, plane)
		}
	}
	return errors.Join(append(errs, reopen(ctx, op, sound, o))...)
}

// reopen puts planes back into service, also after the caller's time is over.
func reopen(ctx context.Context, op Operator, planes []int, o *Options) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var errs []error
	for _, plane := range planes {
		if err := op.Enable(ctx, plane, o.Who); err != nil {
			errs = append(errs, o.failed(plane, err))
		}
	}
	return errors.Join(errs...)
}

// grace is the time for putting planes back into service after the caller's context has ended.
const grace = 10 * time.Second

// set waits until no job holds a plane, then gives it its map. An error that wraps ErrHeld means that it has not moved.
func set(ctx context.Context, op Operator, plane int, m circuit.Permutation, o *Options) error {
	for {
		err := op.Set(ctx, plane, m, o.Who)
		if !errors.Is(err, controller.ErrHeld) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(o.Retry):
		}
	}
}
