// Package doubling plans cyclic recursive doubling with few switches, without a search. It is fast enough to run before
// every call.
//
// Layer: a leaf of plans/planner, on plans. It must not know other schedules.
package doubling
