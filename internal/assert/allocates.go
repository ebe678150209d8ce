package assert

import "testing"

// Allocates returns how often a call of f allocates: the least of five averages over so many calls. Other goroutines
// may allocate meanwhile, so one average may be too high.
func Allocates(calls int, f func()) float64 {
	least := testing.AllocsPerRun(calls, f)
	for i := 1; i < 5 && least != 0; i++ {
		least = min(least, testing.AllocsPerRun(calls, f))
	}
	return least
}
