// Package matrix holds sparse square matrices of link counts, the currency of job-level
// topology: requirements between leaves, links between pods, and what they are divided into.
//
// Layer: a leaf inside plans. It knows rows and counts, neither leaves nor switches.
package matrix
