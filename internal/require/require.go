// Package require ends tests whose preparation fails.
//
// Layer: a leaf that tests of every layer may use.
package require

import "testing"

// NoError ends the test if err is not nil. Call it from the goroutine of the test.
func NoError(t testing.TB, err error) {
	if err != nil {
		t.Helper() // here, as benchmarks and counts of allocations call NoError in their loops
		t.Fatal(err)
	}
}
