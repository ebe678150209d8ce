// Package jobs compares ways to choose the circuits between the pods of a training job, in the form of
// DELTA's evaluation.
//
// Layer: bench. The planners are those of plans/delta; every schedule behind a number has passed its validator.
package jobs
