// Package brief writes short text for messages. It shortens what they quote, such as the reply of a switch or an error
// of another rank.
//
// Layer: a leaf that every layer may use.
package brief

import (
	"fmt"
	"strings"
	"unicode"
)

const more = "..."

// Text returns s if it has at most n bytes, else as much of its beginning as fits into n bytes with "..." behind it.
// It splits no character.
func Text(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:max(0, n-len(more))], "") + more
}

// Line returns at most 200 bytes of s in one line, as [Text] does. Runs of white space and control characters become
// one blank each.
func Line(s string) string {
	blank := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	return Text(strings.Join(strings.FieldsFunc(s, blank), " "), 200)
}

// Count returns n with its noun, in the plural unless n is 1: "2 planes".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
