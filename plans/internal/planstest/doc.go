// Package planstest gives the tests of the packages under plans their common examples.
//
// Layer: inside plans, for tests only.
package planstest
