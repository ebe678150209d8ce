// Package decode reads JSON and describes errors in the words of the text: its lines and fields, never types of Go.
//
// [StrictJSON] and [JSON] read a whole text into a Go value. [Reader] reads one value after another, for formats whose
// errors name the element of a list, or that must not repeat a field.
//
// Layer: a leaf that every layer may use. It knows no format.
package decode
