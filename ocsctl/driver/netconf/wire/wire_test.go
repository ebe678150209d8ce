package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"lightpath/internal/require"
)

// loop is a stream whose reader sees what its writer wrote.
type loop struct{ bytes.Buffer }

func TestFraming(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		var b loop
		f := NewFramer(&b, 1<<20)
		if chunked {
			f.Chunked()
		}
		messages := []string{"<a/>", "<a>]]></a>", strings.Repeat("x>", 300_000), "<b/>"}
		for _, m := range messages {
			require.NoError(t, f.Write([]byte(m)))
		}
		for _, m := range messages {
			got, err := f.Read()
			if err != nil || string(got) != m {
				t.Fatalf("chunked %v: read %d bytes, %v, want %d", chunked, len(got), err, len(m))
			}
		}
		if _, err := f.Read(); !errors.Is(err, io.EOF) || errors.Is(err, ErrMalformed) {
			t.Fatalf("chunked %v: end of stream: %v", chunked, err)
		}
	}
}

func TestChunksOfOneMessage(t *testing.T) {
	b := loop{*bytes.NewBufferString("\n#4\n<rpc\n#18\n message-id=\"102\"\n\n#1\n>\n##\n")}
	f := NewFramer(&b, 100)
	f.Chunked()
	if got, err := f.Read(); err != nil || string(got) != "<rpc message-id=\"102\"\n>" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestBadFrames(t *testing.T) {
	for name, c := range map[string]struct {
		chunked bool
		in      string
	}{
		"end within a message": {false, "<a>"},
		"too long":             {false, strings.Repeat("a", 200) + endOfMessage},
		"no end in sight":      {false, strings.Repeat("a", 1<<17)},
		"no line feed":         {true, "#3\nabc\n##\n"},
		"no hash":              {true, "\n3\nabc\n##\n"},
		"no size":              {true, "\n#\nabc\n##\n"},
		"size zero":            {true, "\n#0\n\n##\n"},
		"leading zero":         {true, "\n#03\nabc\n##\n"},
		"sign":                 {true, "\n#+3\nabc\n##\n"},
		"endless size":         {true, "\n#" + strings.Repeat("9", 100)},
		"huge promise":         {true, "\n#4294967295\nabc"},
		"too long chunks":      {true, "\n#90\n" + strings.Repeat("a", 90) + "\n#90\n"},
		"no chunk":             {true, "\n##\n"},
		"end within a chunk":   {true, "\n#9\nabc"},
		"end within a header":  {true, "\n#9"},
		"end before the end":   {true, "\n#1\na"},
	} {
		b := loop{*bytes.NewBufferString(c.in)}
		f := NewFramer(&b, 100)
		if f.chunked = c.chunked; true {
			if _, err := f.Read(); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestElementRoundTrip(t *testing.T) {
	rows := CrossConnects([]Pair{{1, 17}, {2, 18}})
	rows.operation("replace")
	rows.Children = append(rows.Children, PairElement(Pair{Ingress: 3}, "delete"))
	e := New(BaseNS, "edit-config",
		New(BaseNS, "target", New(BaseNS, "running")), New(BaseNS, "config", rows), Leaf(BaseNS, "note", `<&>"' text`))
	got, err := Parse([]byte(e.String()))
	require.NoError(t, err)
	if got.String() != e.String() {
		t.Fatalf("have %s\nwant %s", got, e)
	}
	xc := got.Child(BaseNS, "config").Child(OpticalNS, "cross-connects")
	if xc.Attr(BaseNS, "operation") != "replace" || xc.Children[2].Attr(BaseNS, "operation") != "delete" {
		t.Fatalf("operations are lost: %s", got)
	}
	if got.Value(BaseNS, "note") != `<&>"' text` {
		t.Fatalf("text: %s", got)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, doc := range map[string]string{
		"nothing":        " ",
		"text":           "hello",
		"unfinished":     "<a><b></b>",
		"crossed":        "<a><b></a></b>",
		"two roots":      "<a/><b/>",
		"text after":     "<a/>x",
		"doctype":        `<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>`,
		"unknown entity": "<a>&b;</a>",
		"deep":           strings.Repeat("<a>", 100) + strings.Repeat("</a>", 100),
		"wide":           "<a>" + strings.Repeat("<b/>", maxElements) + "</a>",
	} {
		if _, err := Parse([]byte(doc)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHello(t *testing.T) {
	h := Hello{Capabilities: []string{Base10, Base11, OpticalNS + "?module=optical-switch"}, Session: 7}
	got, err := ParseHello([]byte(h.Element().String()))
	if err != nil || got.Session != 7 || !got.Has(Base11) || !got.Has(OpticalNS) || got.Has(CapCandidate) {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, bad := range []string{"<hello/>", `<rpc xmlns="` + BaseNS + `"/>`, Hello{}.Element().String(),
		Hello{Capabilities: []string{"urn:other"}}.Element().String()} {
		if _, err := ParseHello([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestReply(t *testing.T) {
	const open = `<rpc-reply message-id="4" xmlns="` + BaseNS + `">`
	r, err := ParseReply([]byte(open + (&Error{Type: "protocol", Tag: "lock-denied", Message: "held\nby\x7f another",
		Session: 9}).Element().String() + `</rpc-reply>`))
	if err != nil || r.ID != "4" || len(r.Errors) != 1 || r.Errors[0].Session != 9 {
		t.Fatalf("%+v, %v", r, err)
	}
	if s := r.Errors[0].Error(); strings.ContainsAny(s, "\n\x7f") {
		t.Fatalf("%q is not one line", s)
	}
	warning := `<rpc-error><error-severity>warning</error-severity></rpc-error>`
	if r, err = ParseReply([]byte(open + warning + `</rpc-reply>`)); err != nil || len(r.Errors) != 0 {
		t.Fatalf("a warning is no error: %+v, %v", r, err)
	}
	for _, bad := range []string{open + `</rpc-reply>`, `<rpc-reply/>`, `<ok/>`, ``} {
		if _, err := ParseReply([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestOpticalData(t *testing.T) {
	data := func(inner string) *Element {
		e, err := Parse([]byte(`<data xmlns="` + BaseNS + `" xmlns:o="` + OpticalNS + `">` + inner + `</data>`))
		require.NoError(t, err)
		return e
	}
	pairs, err := Pairs(data(`<o:cross-connects><o:pair><o:ingress>1</o:ingress><o:egress>17</o:egress></o:pair>` +
		`</o:cross-connects>`))
	if err != nil || len(pairs) != 1 || pairs[0] != (Pair{1, 17}) {
		t.Fatalf("%v, %v", pairs, err)
	}
	if pairs, err = Pairs(data("")); err != nil || len(pairs) != 0 {
		t.Fatalf("an empty switch: %v, %v", pairs, err)
	}
	for _, bad := range []string{"<o:ingress>0</o:ingress>", "<o:ingress>1</o:ingress>",
		"<o:ingress>65536</o:ingress><o:egress>1</o:egress>",
		"<o:ingress>-1</o:ingress><o:egress>1</o:egress>", "<o:egress>1</o:egress>"} {
		if _, err := Pairs(data("<o:cross-connects><o:pair>" + bad +
			"</o:pair></o:cross-connects>")); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	powers, err := Powers(data("<o:opm-power><o:port><o:port-id>3</o:port-id><o:power>-3.10</o:power></o:port>" +
		"</o:opm-power>"))
	if err != nil || powers[3] != -3.1 {
		t.Fatalf("%v, %v", powers, err)
	}
	for _, bad := range []string{"NaN", "bright", "+Inf"} {
		if _, err := Powers(data("<o:opm-power><o:port><o:port-id>3</o:port-id><o:power>" + bad +
			"</o:power></o:port></o:opm-power>")); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(true, []byte("\n#4\n<rpc\n##\n"))
	f.Add(false, []byte("<a/>]]>]]><b/>"))
	f.Fuzz(func(t *testing.T, chunked bool, in []byte) {
		b := loop{*bytes.NewBuffer(in)}
		r := NewFramer(&b, 1<<12)
		r.chunked = chunked
		for {
			msg, err := r.Read()
			if err != nil {
				return
			}
			if len(msg) > 1<<12 {
				t.Fatalf("%d bytes", len(msg))
			}
		}
	})
}

// FuzzParse: what parses is written so that it parses to the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(New(BaseNS, "config", CrossConnects([]Pair{{1, 17}})).String()))
	f.Add([]byte(`<rpc-reply message-id="1" xmlns="` + BaseNS + `"><ok/></rpc-reply>`))
	f.Add([]byte(Hello{Capabilities: []string{Base11}, Session: 1}.Element().String()))
	f.Fuzz(func(t *testing.T, doc []byte) {
		e, err := Parse(doc)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		_, _ = ParseHello(doc)
		_, _ = ParseReply(doc)
		_, _ = Pairs(e)
		_, _ = Powers(e)
		_, _ = PortStates(e)
		again, err := Parse(e.Append(nil))
		if err != nil || again.String() != e.String() {
			t.Fatalf("%s\n%v, %v", e, again, err)
		}
	})
}
