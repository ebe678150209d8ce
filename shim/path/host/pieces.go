package host

import (
	"sync"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/session"
	"lightpath/shim/steps"
)

// runInPieces runs calls, some of which are cut because other ranks may have their buffers in device memory.
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
