// Package plantest holds the random problems of the tests of plans/planner, and how many of them a test tries.
//
// Layer: for tests only. It must not import rooms of plans/planner.
package plantest
