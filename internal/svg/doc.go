// Package svg writes the elements of an SVG picture, with the colours that all pictures share.
// Pictures have no scripts, fonts or references to other files.
//
// Layer: a leaf that every layer may use. It must not import other packages of Lightpath, and it
// performs no I/O.
package svg
