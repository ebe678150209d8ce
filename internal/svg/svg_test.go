package svg

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// TestPicture: every element is well-formed XML with its titles and texts escaped.
func TestPicture(t *testing.T) {
	const hostile = "<b> & \"quotes\" \x01"
	var c Canvas
	c.Rect(1, 2, 3, 4, `fill="`+Track+`"`, hostile)
	c.Circle(1, 2, 3, `fill="`+Good+`"`, "")
	c.Path("M0 0L1 1", `stroke="`+Ink+`"`, "a path")
	c.Line(0, 0, 1, 1, `stroke="`+Grid+`"`)
	c.Text(1, 2, 11, "start", Ink, hostile)
	d := xml.NewDecoder(strings.NewReader(c.Picture(100, 50)))
	elements, texts := map[string]int{}, 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			elements[token.Name.Local]++
		case xml.CharData:
			if string(token) == "<b> & \"quotes\"  " {
				texts++
			}
		}
	}
	for name, n := range map[string]int{"svg": 1, "rect": 2, "circle": 1, "path": 1, "line": 1, "text": 1, "title": 2} {
		if elements[name] != n {
			t.Errorf("%d elements %s, want %d", elements[name], name, n)
		}
	}
	if texts != 2 {
		t.Errorf("%d texts are as written, want 2", texts)
	}
}

func TestFit(t *testing.T) {
	for w, want := range map[float64]string{200: "a long label", 50: "short", 5: ""} {
		if got := Fit(w, 10, "a long label", "short"); got != want {
			t.Errorf("%v pixels: %q, want %q", w, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for text, want := range map[string]string{"": "", "ten letter": "ten letter", "eleven lett": "eleven ...",
		"sixsix\u00e9 more": "sixsix..."} {
		if got := Cut(TextWidth("ten letter", 10), 10, text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestNiceStep(t *testing.T) {
	for _, c := range []struct {
		span  float64
		count int
		want  float64
	}{{1200, 10, 200}, {100, 10, 10}, {99, 10, 10}, {7, 10, 1}, {0.45, 9, 0.05}} {
		if got := NiceStep(c.span, c.count); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v/%d: %v, want %v", c.span, c.count, got, c.want)
		}
	}
}
