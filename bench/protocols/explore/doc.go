// Package explore enumerates all choices of a model, depth first. It compares states by a hash of Go values, so a
// complete search has seen every state.
//
// Layer: a leaf of bench/protocols. It must not know what it explores.
package explore
