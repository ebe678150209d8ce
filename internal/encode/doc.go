// Package encode appends JSON to a buffer, for formats that choose their own lines.
//
// Layer: a leaf that every layer may use. It knows no format.
package encode
