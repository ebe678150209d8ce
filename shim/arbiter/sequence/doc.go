// Package sequence learns the period of a job: the operations that a communicator repeats. It predicts the next one.
// A prediction is a hint; callers must work whatever comes.
//
// Layer: below arbiter. It knows keys and gaps, no shapes, ranks or planes. It has no clock.
package sequence
