package assert

import "testing"

// Allocates returns how often a call of f allocates: the average over so many calls or, if that is not 0, the least of
// single ones. Other goroutines may allocate meanwhile, and on a busy host during most calls.
func Allocates(calls int, f func()) float64 {
	least := testing.AllocsPerRun(calls, f)
	for i := 0; i < 2*calls && least != 0; i++ {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}
