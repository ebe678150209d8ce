//go:build race

package bridge

// raceEnabled says that the race detector runs. Under it, sync.Pool drops some values on purpose.
const raceEnabled = true
