//go:build race

package bridge

// raceEnabled reports that the race detector runs. Under it, sync.Pool drops some values on purpose.
const raceEnabled = true
