// Package deltatest makes random jobs and circuits for the tests of plans/delta.
//
// Layer: tests only, above dag. A seed gives the same job everywhere.
package deltatest
