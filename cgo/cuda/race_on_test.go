//go:build race

package cuda_test

// raceEnabled: the race detector allocates.
const raceEnabled = true
