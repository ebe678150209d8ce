// Package brute finds the optimum of tiny planning problems by trying every sequence of
// circuits and, for each, timing it with a linear program. It is what planners and their
// bounds are held against, and shares nothing with them but the types of a problem.
//
// The plans that it tries: every plane works at most so many times in a step, each time on
// any circuits that a plane can hold, with any set of the flows that these carry, for any time;
// planes are not synchronized but by the steps. Not among them: joint transmissions and idle
// reconfigurations, which cannot help.
//
// Layer: inside plans, for tests only.
package brute
