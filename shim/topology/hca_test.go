package topology

import (
	"errors"
	"slices"
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
		"": "no device", ":1": "no device", "a:": `port: ""`, "a:0": `port: "0"`, "a:256": `port: "256"`,
		"a:-1": `port: "-1"`, "a:+1": `port: "+1"`,
		"a:1:x": `rail: "x"`, "a:1:0:": `plane: ""`, "a:1:0:0:0": "more than device:port:rail:plane", "a b": "no name",
		"a,b": "no name", "^a": "no name",
		"=a": "no name", "../a": "no name", "a\n": "no name", strings.Repeat("a", 64): "no name",
	} {
		if _, err := ParseHCA(text); !errors.Is(err, ErrHCA) || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v, want %q", text, err, part)
		}
	}
}

// FuzzParseHCA checks that accepted text is written and read back the same, and stays in bounds.
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
		if h.Port == 0 || h.Port > 255 || h.Rail > 255 || h.Plane > 255 || h.Device == "" || h.Plane != Unknown &&
			h.Rail == Unknown {
			t.Fatalf("%q: %+v", text, h)
		}
	})
}

func TestSelectHCAs(t *testing.T) {
	names := []string{"mlx5_0", "mlx5_1", "mlx5_10", "rxe0"}
	for _, c := range []struct{ list, want string }{
		{"", "mlx5_0:1 mlx5_1:1 mlx5_10:1 rxe0:1"},
		{"mlx5_1", "mlx5_1:1 mlx5_10:1"},
		{"=mlx5_1", "mlx5_1:1"},
		{"rxe0,mlx5_0:2", "rxe0:1 mlx5_0:2"},
		{"^mlx5_1", "mlx5_0:1 rxe0:1"},
		{"^=mlx5_1", "mlx5_0:1 mlx5_10:1 rxe0:1"},
		{"=mlx5_1:1:0:1,mlx5_0:1:0:0", "mlx5_1:1:0:1 mlx5_0:1:0:0"},
		{"mlx5_0,mlx5_0", "mlx5_0:1"},
		{"none", ""},
	} {
		l, err := ParseHCAs(c.list)
		if err != nil {
			t.Errorf("%q: %v", c.list, err)
			continue
		}
		var got []string
		for _, h := range l.Select(names) {
			got = append(got, h.String())
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%q: %q, want %q", c.list, s, c.want)
		}
	}
	for list, want := range map[string]string{
		"^": "names no device", "=": "names no device", "mlx5_0:1:0:0,mlx5_1": "name their plane",
		"^mlx5_0:1:0:0": "has no plane", "a b": "no name",
	} {
		if _, err := ParseHCAs(list); !errors.Is(err, ErrHCA) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", list, err, want)
		}
	}
}

func TestPortsOnPlanes(t *testing.T) {
	for _, c := range []struct {
		list          string
		planes, local int
		want          string
	}{
		{"a,b", 2, 0, "a:1 b:1"},
		{"a,b", 2, 5, "a:1 b:1"},
		{"a,b", 1, 0, "a:1"},
		{"a,b", 1, 1, "b:1"},
		{"a,b", 3, 0, "a:1 b:1 a:1"},
		{"a,b,c,d", 2, 1, "c:1 d:1"},
		{"a:1:0:1,b:1:0:0", 2, 0, "b:1:0:0 a:1:0:1"},
		{"a:1:1:0,b:1:0:0", 1, 0, "b:1:0:0"},
		{"a:1:1:0,b:1:0:0", 1, 3, "a:1:1:0"},
	} {
		l, err := ParseHCAs("=" + c.list)
		if err != nil {
			t.Fatal(err)
		}
		used, err := OnPlanes(l.Select([]string{"a", "b", "c", "d"}), c.planes, c.local)
		if err != nil {
			t.Errorf("%q: %v", c.list, err)
			continue
		}
		var got []string
		for _, h := range used {
			got = append(got, h.String())
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%q on %d planes, local rank %d: %q, want %q", c.list, c.planes, c.local, s, c.want)
		}
	}
	if _, err := OnPlanes([]HCA{{Device: "a", Port: 1, Plane: 1}}, 2, 0); err == nil || !strings.Contains(err.Error(),
		"plane 0 has no port") {
		t.Errorf("%v", err)
	}
	if _, err := OnPlanes(nil, 1, 0); err == nil {
		t.Error("no ports at all: accepted")
	}
}

// FuzzParseHCAs: a list is read or refused, and means no port that is not there.
func FuzzParseHCAs(f *testing.F) {
	for _, s := range []string{"", "mlx5", "=mlx5_0:1,mlx5_1:1:0:1", "^mlx5_1", "^=a:1:0:0", ",,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseHCAs(text)
		if err != nil {
			if !errors.Is(err, ErrHCA) {
				t.Fatal(err)
			}
			return
		}
		names := []string{"mlx5_0", "mlx5_1"}
		for _, h := range l.Select(names) {
			if h.Port < 1 || !slices.Contains(names, h.Device) {
				t.Fatalf("%q: %+v", text, h)
			}
		}
	})
}
