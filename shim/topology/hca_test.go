package topology

import (
	"errors"
	"strings"
	"testing"
)

func TestParseHCA(t *testing.T) {
	for text, want := range map[string]HCA{
		"mlx5_0":       {"mlx5_0", Unknown, Unknown, Unknown},
		"mlx5_0:1":     {"mlx5_0", 1, Unknown, Unknown},
		"rxe-a.1:2:3":  {"rxe-a.1", 2, 3, Unknown},
		"mlx5_0:1:0:3": {"mlx5_0", 1, 0, 3},
	} {
		got, err := ParseHCA(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q: %+v (%s), %v", text, got, got, err)
		}
	}
	for text, part := range map[string]string{
		"": "no device", ":1": "no device", "a:": `port: ""`, "a:0": `port: "0"`, "a:256": `port: "256"`, "a:-1": `port: "-1"`, "a:+1": `port: "+1"`,
		"a:1:x": `rail: "x"`, "a:1:0:": `plane: ""`, "a:1:0:0:0": "more than device:port:rail:plane", "a b": "no name", "a,b": "no name", "^a": "no name",
		"=a": "no name", "../a": "no name", "a\n": "no name", strings.Repeat("a", 64): "no name",
	} {
		if _, err := ParseHCA(text); !errors.Is(err, ErrHCA) || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v, want %q", text, err, part)
		}
	}
}

// FuzzParseHCA: what is accepted is written and read back the same, and stays in bounds.
func FuzzParseHCA(f *testing.F) {
	for _, seed := range []string{"mlx5_0", "mlx5_0:1", "mlx5_0:1:0:0", "a:01", ":", "a:1::", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseHCA(text)
		if err != nil {
			if !errors.Is(err, ErrHCA) || strings.ContainsRune(err.Error(), '\n') {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		back, err := ParseHCA(h.String())
		if err != nil || back != h {
			t.Fatalf("%q reads as %+v, and %q as %+v, %v", text, h, h, back, err)
		}
		if h.Port == 0 || h.Port > 255 || h.Rail > 255 || h.Plane > 255 || h.Device == "" || h.Plane != Unknown && h.Rail == Unknown {
			t.Fatalf("%q: %+v", text, h)
		}
	})
}
