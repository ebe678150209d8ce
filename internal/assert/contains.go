package assert

import (
	"strings"
	"testing"
)

// Contains reports each of some words that is not in a text. Any goroutine of the test may call it.
func Contains(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}
