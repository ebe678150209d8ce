// Package exchange times grouped sends and receives of unequal sizes over planes with circuits. Each demand matrix is
// scheduled by SPECTRA and in plain order of distance, by turns on the same planes.
//
// Layer: bench.
package exchange
