// Package oracle computes the correct results of collectives in a slow and simple way, for tests and for checks of
// results.
//
// It imports datatype and schedule. The packages that run collectives must not import it.
package oracle
