// Package decode reads JSON into Go values and says what is wrong in the words of the text: its
// lines and fields, never types of Go.
//
// Layer: a leaf that every layer may use. It knows no format.
package decode
