// Package await lets tests wait for other goroutines and processes.
//
// Layer: a leaf that tests of every layer may use.
package await

import (
	"context"
	"errors"
	"testing"
	"time"
)

const (
	// patience bounds every wait. Only a condition that never becomes true takes so long, also on a loaded machine.
	patience = time.Minute
	interval = 500 * time.Microsecond
)

var errFalse = errors.New("the condition is false")

// Until calls ok until it returns true. After a minute it ends the test with an error that names what.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Success(t, what, func() error {
		if ok() {
			return nil
		}
		return errFalse
	})
}

// Success calls f until it returns nil. After a minute it ends the test with f's last error.
func Success(t testing.TB, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(interval) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
	}
}

// Background runs f beside the test, until the test ends. Then the context of f ends, and an error of f fails the test.
func Background(t testing.TB, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("in the background: %v", err)
		}
	})
}
