// Package assert reports errors of tests that go on after them; package require ends the test.
//
// Layer: a leaf that tests of every layer may use.
package assert

import "testing"

// NoError reports err if it is not nil. Any goroutine of the test may call it.
func NoError(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Error(err)
	}
}
