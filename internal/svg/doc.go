// Package svg writes the elements of an SVG picture, with the colours that all pictures share.
// Pictures have no scripts, fonts or references to other files.
//
// Layer: every layer may use it. It imports package brief only, and performs no I/O.
package svg
