package wire

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"

	"lightpath/internal/brief"
)

// Limits of one message, besides its size: a map of 65535 pairs has 196606 elements.
const (
	maxDepth    = 32
	maxElements = 1 << 18
)

// Element is one XML element: either children or text, as YANG data has it.
type Element struct {
	Name     xml.Name
	Attrs    []xml.Attr // without namespace declarations
	Text     string     // trimmed; "" if there are children
	Children []*Element
}

// New returns an element with children.
func New(space, local string, children ...*Element) *Element {
	return &Element{Name: xml.Name{Space: space, Local: local}, Children: children}
}

// Leaf returns an element with text.
func Leaf(space, local, text string) *Element {
	return &Element{Name: xml.Name{Space: space, Local: local}, Text: text}
}

// Child returns the first child with a name, nil if there is none. e may be nil.
func (e *Element) Child(space, local string) *Element {
	if e == nil {
		return nil
	}
	for _, c := range e.Children {
		if c.Name.Local == local && c.Name.Space == space {
			return c
		}
	}
	return nil
}

// Value returns the text of the first child with a name, "" if there is none.
func (e *Element) Value(space, local string) string {
	if c := e.Child(space, local); c != nil {
		return c.Text
	}
	return ""
}

// Attr returns the value of an attribute, "" if there is none.
func (e *Element) Attr(space, local string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == local && a.Name.Space == space {
			return a.Value
		}
	}
	return ""
}

// SetAttr adds an attribute without a namespace.
func (e *Element) SetAttr(name, value string) {
	e.Attrs = append(e.Attrs, xml.Attr{Name: xml.Name{Local: name}, Value: value})
}

// Parse reads one document. It refuses document types, so it expands no entity, and documents with too many levels or
// elements. Errors wrap ErrMalformed.
func Parse(doc []byte) (*Element, error) {
	d := xml.NewDecoder(bytes.NewReader(doc))
	var root *Element
	var open []*opened
	count := 0
	for {
		tok, err := d.Token()
		if err == io.EOF { //nolint:errorlint // Token returns it bare
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s", ErrMalformed, brief.Line(err.Error()))
		}
		switch t := tok.(type) {
		case xml.Directive:
			return nil, fmt.Errorf("%w: a document type declaration", ErrMalformed)
		case xml.StartElement:
			if count++; count > maxElements || len(open) == maxDepth {
				return nil, fmt.Errorf("%w: more than %d elements or %d levels", ErrMalformed, maxElements, maxDepth)
			}
			e := &Element{Name: t.Name, Attrs: ordinary(t.Attr)}
			switch {
			case len(open) > 0:
				up := open[len(open)-1].e
				up.Children = append(up.Children, e)
			case root != nil:
				return nil, fmt.Errorf("%w: two documents in one message", ErrMalformed)
			default:
				root = e
			}
			open = append(open, &opened{e: e})
		case xml.EndElement:
			if o := open[len(open)-1]; len(o.e.Children) == 0 {
				o.e.Text = string(bytes.TrimSpace(o.text))
			}
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].add(t)
			} else if len(bytes.TrimSpace(t)) > 0 {
				return nil, fmt.Errorf("%w: text outside of the document", ErrMalformed)
			}
		}
	}
	if root == nil {
		return nil, fmt.Errorf("%w: an empty message", ErrMalformed)
	}
	return root, nil
}

// opened is an element whose end has not been read yet.
type opened struct {
	e    *Element
	text []byte
}

// add collects text, but not the white space between children.
func (o *opened) add(t []byte) {
	if len(o.e.Children) == 0 {
		o.text = append(o.text, t...)
	}
}

// ordinary drops namespace declarations, which the decoder has already resolved.
func ordinary(attrs []xml.Attr) []xml.Attr {
	var keep []xml.Attr
	for _, a := range attrs {
		if a.Name.Space != "xmlns" && a.Name.Local != "xmlns" {
			keep = append(keep, a)
		}
	}
	return keep
}

// Append writes e as XML to b and returns the longer slice. It declares a namespace that differs from that of the
// surrounding element.
func (e *Element) Append(b []byte) []byte { return e.append(b, "") }

func (e *Element) append(b []byte, around string) []byte {
	b = append(b, '<')
	b = append(b, e.Name.Local...)
	if e.Name.Space != around {
		b = attribute(b, "xmlns", e.Name.Space)
	}
	declared := false
	for i, a := range e.Attrs {
		name := a.Name.Local
		switch a.Name.Space {
		case "":
		case BaseNS:
			if !declared {
				b = attribute(b, "xmlns:nc", BaseNS)
			}
			declared, name = true, "nc:"+name
		default:
			prefix := fmt.Sprintf("a%d", i)
			b = attribute(b, "xmlns:"+prefix, a.Name.Space)
			name = prefix + ":" + name
		}
		b = attribute(b, name, a.Value)
	}
	if e.Text == "" && len(e.Children) == 0 {
		return append(b, "/>"...)
	}
	b = append(b, '>')
	b = escape(b, e.Text)
	for _, c := range e.Children {
		b = c.append(b, e.Name.Space)
	}
	b = append(b, "</"...)
	b = append(b, e.Name.Local...)
	return append(b, '>')
}

func attribute(b []byte, name, value string) []byte {
	b = append(b, ' ')
	b = append(b, name...)
	b = append(b, `="`...)
	b = escape(b, value)
	return append(b, '"')
}

func escape(b []byte, s string) []byte {
	var w bytes.Buffer
	_ = xml.EscapeText(&w, []byte(s)) // a buffer takes everything
	return append(b, w.Bytes()...)
}

// String returns e as XML.
func (e *Element) String() string { return string(e.Append(nil)) }
