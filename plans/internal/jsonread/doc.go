// Package jsonread reads JSON strictly. An error names the line, or the field with the list and element around it.
//
// Layer: a leaf inside plans. It knows no format.
package jsonread
