//go:build race

package bridge

// raceEnabled: under the race detector sync.Pool forgets on purpose.
const raceEnabled = true
