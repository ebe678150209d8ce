// Package deltatest makes random jobs for the tests of plans/delta.
package deltatest
