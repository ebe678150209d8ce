// Package host runs groups of calls on host memory: one short collective through shared memory at once, everything else
// as a session. For C, which makes short calls by itself, it writes recipes.
//
// Layer: a path, above session and steps. It knows no streams, and no other path.
package host

import (
	"runtime/debug"
	"slices"
	"sync"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/session"
	"lightpath/shim/steps"
)

// Run runs checked calls on host memory and returns when all have ended, or [errdefs.ErrInProgress] if their
// communicators do not block. Hot path: a group of shapes seen before allocates nothing on packet planes.
func Run(group []calls.Call) (err error) {
	defer guard(group, debug.SetPanicOnFault(true), &err)
	if len(group) == 1 {
		if c := &group[0]; runsAlone(c) {
			return runAlone(c.Comm, group)
		}
	}
	s := session.New(group)
	defer s.Close()
	for i := range group {
		if c := group[i].Comm; !slices.Contains(s.Comms, c) {
			s.Comms = append(s.Comms, c)
		}
	}
	if len(s.Comms) > 0 && s.Comms[0].NonBlocking || len(s.Comms) > 1 {
		if background, err := startInBackground(s); background || err != nil {
			return err
		}
	}
	return run(s)
}

// run runs a session whose calls may be cut.
func run(s *session.Session) error {
	for i := range s.Calls {
		if s.Calls[i].IsCut() {
			return runInPieces(s)
		}
	}
	return s.Run()
}

// runInPieces runs calls of which some are cut, since other ranks may have their buffers in device memory.
func runInPieces(s *session.Session) error {
	lists := make([]steps.List, len(s.Comms))
	var pieces []calls.Call
	strided := false
	for k, c := range s.Comms {
		l := &lists[k]
		l.Begin(c)
		for i := range s.Calls {
			if s.Calls[i].Comm == c {
				l.From, l.Staged = append(l.From, s.Calls[i]), append(l.Staged, steps.Staged{})
			}
		}
		room := make([]byte, l.Measure())
		strided = strided || len(room) > 0
		l.Write(unsafe.Pointer(unsafe.SliceData(room)))
		pieces = append(pieces, l.Calls...)
	}
	if !strided {
		s.Calls = pieces
		return s.Run()
	}
	errs := make([]error, len(lists))
	var wg sync.WaitGroup
	for k := range lists {
		wg.Go(func() {
			for i := 0; i < len(lists[k].Steps) && errs[k] == nil; i++ {
				errs[k] = lists[k].Run(i)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
