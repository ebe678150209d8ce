package wire

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lightpath/internal/brief"
)

// Hello is the first message of either side. Session is 0 in a client's.
type Hello struct {
	Capabilities []string
	Session      uint64
}

// Has reports whether the peer has a capability, with any parameters after "?".
func (h Hello) Has(capability string) bool {
	return slices.ContainsFunc(h.Capabilities, func(c string) bool {
		bare, _, _ := strings.Cut(c, "?")
		return bare == capability
	})
}

// Element returns the message.
func (h Hello) Element() *Element {
	caps := New(BaseNS, "capabilities")
	for _, c := range h.Capabilities {
		caps.Children = append(caps.Children, Leaf(BaseNS, "capability", c))
	}
	e := New(BaseNS, "hello", caps)
	if h.Session != 0 {
		e.Children = append(e.Children, Leaf(BaseNS, "session-id", strconv.FormatUint(h.Session, 10)))
	}
	return e
}

// ParseHello reads a hello; it must name a base version that this package frames.
func ParseHello(doc []byte) (Hello, error) {
	e, err := Parse(doc)
	if err != nil {
		return Hello{}, err
	}
	if e.Name != (xml.Name{Space: BaseNS, Local: "hello"}) {
		return Hello{}, fmt.Errorf("%w: <%s> where a hello is due", ErrMalformed, brief.Line(e.Name.Local))
	}
	var h Hello
	if caps := e.Child(BaseNS, "capabilities"); caps != nil {
		for _, c := range caps.Children {
			h.Capabilities = append(h.Capabilities, c.Text)
		}
	}
	if id := e.Value(BaseNS, "session-id"); id != "" {
		if h.Session, err = strconv.ParseUint(id, 10, 32); err != nil {
			return Hello{}, fmt.Errorf("%w: session-id %q", ErrMalformed, brief.Line(id))
		}
	}
	if !h.Has(Base10) && !h.Has(Base11) {
		return Hello{}, fmt.Errorf("%w: a hello without base 1.0 or 1.1", ErrMalformed)
	}
	return h, nil
}

// Error is an rpc-error (RFC 6241, section 4.3).
type Error struct {
	Type, Tag, Path, Message string
	Session                  uint64 // of lock-denied: the session that holds the lock
}

// Error returns one line without the peer's control characters.
func (e *Error) Error() string {
	s := e.Tag
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Path != "" {
		s += " (" + e.Path + ")"
	}
	return brief.Line(s)
}

// Element returns the rpc-error.
func (e *Error) Element() *Element {
	x := New(BaseNS, "rpc-error",
		Leaf(BaseNS, "error-type", e.Type), Leaf(BaseNS, "error-tag", e.Tag), Leaf(BaseNS, "error-severity", "error"))
	if e.Path != "" {
		x.Children = append(x.Children, Leaf(BaseNS, "error-path", e.Path))
	}
	if e.Message != "" {
		x.Children = append(x.Children, Leaf(BaseNS, "error-message", e.Message))
	}
	if e.Tag == "lock-denied" {
		x.Children = append(x.Children, New(BaseNS, "error-info",
			Leaf(BaseNS, "session-id", strconv.FormatUint(e.Session, 10))))
	}
	return x
}

// Reply is an rpc-reply: its id, its errors without warnings, and its data if there is any.
type Reply struct {
	ID     string
	Errors []*Error
	Data   *Element
}

// ParseReply reads an rpc-reply.
func ParseReply(doc []byte) (Reply, error) {
	e, err := Parse(doc)
	if err != nil {
		return Reply{}, err
	}
	if e.Name != (xml.Name{Space: BaseNS, Local: "rpc-reply"}) {
		return Reply{}, fmt.Errorf("%w: <%s> where a reply is due", ErrMalformed, brief.Line(e.Name.Local))
	}
	r := Reply{ID: e.Attr("", "message-id"), Data: e.Child(BaseNS, "data")}
	ok := e.Child(BaseNS, "ok") != nil || r.Data != nil
	for _, c := range e.Children {
		if c.Name != (xml.Name{Space: BaseNS, Local: "rpc-error"}) {
			continue
		}
		if c.Value(BaseNS, "error-severity") == "warning" {
			ok = true
			continue
		}
		bad := &Error{
			Type: c.Value(BaseNS, "error-type"), Tag: c.Value(BaseNS, "error-tag"),
			Path: c.Value(BaseNS, "error-path"), Message: c.Value(BaseNS, "error-message"),
		}
		bad.Session, _ = strconv.ParseUint(c.Child(BaseNS, "error-info").Value(BaseNS, "session-id"), 10, 32)
		r.Errors = append(r.Errors, bad)
	}
	if len(r.Errors) == 0 && !ok {
		return Reply{}, fmt.Errorf("%w: a reply that says neither ok nor data nor error", ErrMalformed)
	}
	return r, nil
}
