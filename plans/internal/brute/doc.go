// Package brute finds the optimum of tiny planning problems. It tries every sequence of circuits and times each with a
// linear program. Tests compare planners and their bounds with it. It shares only the types of a problem with them.
//
// It tries these plans: every plane works at most a given number of times in a step. Each time it may have any circuits
// that a plane can hold, any set of the flows that these carry, and any duration. Only the steps synchronize planes. It
// does not try joint transmissions, nor idle reconfigurations, which cannot help.
//
// Layer: inside plans, for tests only.
package brute
