// Package matrix holds sparse square matrices of link counts: requirements between leaves, links
// between pods, and their parts.
//
// Layer: the innermost package of plans/lumos. It knows rows and counts, neither leaves nor switches.
package matrix
