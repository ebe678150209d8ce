// Package jobs compares algorithms that choose the circuits between the pods of a training job, in
// the form of DELTA's evaluation.
//
// Layer: bench. The algorithms are those of plans/delta. The validator plans/delta/check has checked
// every schedule behind a number.
package jobs
