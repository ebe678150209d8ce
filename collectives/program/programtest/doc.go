// Package programtest provides calls with their results, and random plans, for tests of programs and of the executor.
// Only tests may import it.
package programtest
