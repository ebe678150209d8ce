// Package planstest holds common examples for the tests of the packages under plans.
//
// Layer: inside plans, for tests only.
package planstest
