//go:build !race

package shimtest

// RaceEnabled tells that the race detector is on. It allocates by itself and is slow.
const RaceEnabled = false
