package explore

import "fmt"

// Space is one run of a model whose choices the explorer enumerates. Equal choices give equal runs.
type Space interface {
	// Steps returns how many steps may happen next, at most 256; 0: the run has ended. Name names one of them.
	Steps() int
	Name(step int) string
	// Do makes a step happen. It returns the violation of an invariant, also of those of an ended run.
	Do(step int) error
	// Fingerprint returns a number that is equal for equal states. The explorer does not continue from a state that it
	// has seen.
	Fingerprint() uint64
	// Close frees the run.
	Close()
}

// Result is the result of a search.
type Result struct {
	States  int   // different ones
	Runs    int   // each from the first state
	Depth   int   // steps of the longest run
	Error   error // the first violation; nil: the search has seen every state
	Choices []int // that lead to the violation
	Trace   []string
}

// Run runs a model with all choices of steps: depth first, and each run from the start. It stops at the first
// violation.
func Run(start func() (Space, error)) (*Result, error) {
	x := &Result{}
	seen, pending := map[uint64]bool{}, [][]uint8{nil}
	for len(pending) > 0 && x.Error == nil {
		path := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		s, err := start()
		if err != nil {
			return nil, err
		}
		x.Runs++
		pending = append(pending, x.run(s, path, seen)...)
		s.Close()
	}
	x.States = len(seen)
	return x, nil
}

// run repeats the steps of a path, and then takes the first step of each new state. It returns the paths that it leaves
// out.
func (x *Result) run(s Space, path []uint8, seen map[uint64]bool) (left [][]uint8) {
	for i := 0; ; i++ {
		x.Depth = max(x.Depth, i)
		if steps := s.Steps(); i >= len(path) {
			f := s.Fingerprint()
			known := seen[f]
			if seen[f] = true; known || steps == 0 {
				return left
			}
			for k := steps - 1; k > 0; k-- {
				left = append(left, append(path[:i:i], uint8(k)))
			}
			path = append(path[:i:i], 0)
		}
		if err := s.Do(int(path[i])); err != nil {
			x.Error = err
			for _, c := range path[:i+1] {
				x.Choices = append(x.Choices, int(c))
			}
			return nil
		}
	}
}

// Name repeats a violation to name its steps.
func (x *Result) Name(start func() (Space, error)) error {
	s, err := start()
	if err != nil {
		return err
	}
	defer s.Close()
	for _, c := range x.Choices {
		s.Steps()
		x.Trace = append(x.Trace, s.Name(c))
		if err := s.Do(c); err != nil {
			return nil
		}
	}
	return fmt.Errorf("explore: the run did not repeat: %w", x.Error)
}
