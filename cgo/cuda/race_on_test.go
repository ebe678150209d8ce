//go:build race

package cuda_test

// raceEnabled is true with the race detector, which allocates.
const raceEnabled = true
