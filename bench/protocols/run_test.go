package protocols

import "testing"

// TestSameSeed checks that a seed gives one trace.
func TestSameSeed(t *testing.T) {
	run := func(seed uint64) uint64 { return Run(Config{Lines: true}, Random(seed)).Trace.Hash }
	if run(1) != run(1) || run(1) == run(2) {
		t.Error("the trace does not depend on the seed alone")
	}
}
