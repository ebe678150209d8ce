package brief

import (
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"ring", 4, "ring"}, {"rabenseifner", 8, "raben..."}, {"aé: dark", 6, "aé..."}, {"aé: dark", 5, "a..."}, {"", 0, ""},
	} {
		if got := Text(c.text, c.n); got != c.want || len(got) > c.n {
			t.Errorf("%q in %d bytes: %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

func TestLine(t *testing.T) {
	if got := Line("  no\r\n such\x00\tport "); got != "no such port" {
		t.Errorf("%q", got)
	}
	if got := Line(strings.Repeat("port ", 100)); len(got) > 200 || !strings.HasSuffix(got, "...") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 planes", 1: "1 plane", 2: "2 planes"} {
		if got := Count(n, "plane"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
