package msccl

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"lightpath/collectives/schedule"
	"lightpath/internal/brief"
	"lightpath/plans"
)

// Decode reads and validates a file (see [File.Validate]). It ignores unknown attributes and rejects unknown elements.
// Errors wrap [ErrFormat] and name the line.
func Decode(text []byte) (*File, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrFormat, len(text), maxText)
	}
	d := &decoder{xml: xml.NewDecoder(bytes.NewReader(text))}
	f, err := d.file()
	if err != nil {
		line, _ := d.xml.InputPos()
		return nil, fmt.Errorf("%w: line %d: %w", ErrFormat, line, err)
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	return f, nil
}

// maxQuoted is how many bytes of the file's text an error quotes.
const maxQuoted = 40

type decoder struct {
	xml *xml.Decoder
}

// next returns the next start or end of an element, or nil at the end of the text. It skips comments and white space.
func (d *decoder) next() (xml.Token, error) {
	for {
		token, err := d.xml.Token()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement, xml.EndElement:
			return t, nil
		case xml.CharData:
			if text := strings.TrimSpace(string(t)); text != "" {
				return nil, fmt.Errorf("text %q between elements", brief.Text(text, maxQuoted))
			}
		case xml.Directive:
			return nil, errors.New("a document type declaration")
		}
	}
}

// children calls each for every child of the current element. All children must have the given name.
func (d *decoder) children(name string, each func(a *attributes) error) error {
	for {
		token, err := d.next()
		if err != nil {
			return err
		}
		start, ok := token.(xml.StartElement)
		if !ok { // the end of this element, whose name the decoder has checked
			return nil
		}
		if start.Name.Local != name {
			return fmt.Errorf("element <%s>, want <%s>", brief.Text(start.Name.Local, maxQuoted), name)
		}
		a, err := newAttributes(start)
		if err == nil {
			err = each(a)
		}
		if err != nil {
			return err
		}
	}
}

func (d *decoder) file() (*File, error) {
	token, err := d.next()
	if err != nil {
		return nil, err
	}
	start, ok := token.(xml.StartElement)
	if !ok || start.Name.Local != "algo" {
		return nil, errors.New("no <algo>")
	}
	a, err := newAttributes(start)
	if err != nil {
		return nil, err
	}
	f := &File{
		Name: a.values["name"], Proto: a.values["proto"], Channels: a.number("nchannels", 0, plans.MaxRanks),
		ChunksPerLoop: a.number("nchunksperloop", 1, maxPlaces), InPlace: a.flag("inplace"),
		MinBytes: a.optional("minBytes", 0), MaxBytes: a.optional("maxBytes", 0), Root: int(a.optional("root", -1)),
	}
	n := a.number("ngpus", 1, plans.MaxRanks)
	if f.Custom = a.values["coll"] == "custom"; !f.Custom {
		f.Collective = a.collective("coll")
	}
	if a.err != nil {
		return nil, a.err
	}
	f.GPUs = make([]GPU, n)
	seen := make([]bool, n)
	err = d.children("gpu", func(a *attributes) error {
		id := a.number("id", 0, n-1)
		if a.err == nil && seen[id] {
			return fmt.Errorf("gpu %d: defined twice", id)
		}
		if a.err != nil {
			return a.err
		}
		seen[id] = true
		if err := d.gpu(a, &f.GPUs[id]); err != nil {
			return fmt.Errorf("gpu %d: %w", id, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if id := slices.Index(seen, false); id >= 0 {
		return nil, fmt.Errorf("gpu %d: missing", id)
	}
	if token, err := d.next(); err != nil {
		return nil, fmt.Errorf("after </algo>: %w", err)
	} else if token != nil {
		return nil, errors.New("a second element after </algo>")
	}
	return f, nil
}

func (d *decoder) gpu(a *attributes, g *GPU) error {
	for b, name := range bufferNames {
		g.Chunks[b] = a.number(name+"_chunks", 0, maxPlaces)
	}
	if a.err != nil {
		return a.err
	}
	blocks := map[int]Block{}
	err := d.children("tb", func(a *attributes) error {
		id := a.number("id", 0, maxPieces)
		b := Block{
			Send: a.number("send", -1, plans.MaxRanks), Recv: a.number("recv", -1, plans.MaxRanks),
			Chan: a.number("chan", -1, plans.MaxRanks),
		}
		if a.err != nil {
			return a.err
		}
		if _, twice := blocks[id]; twice {
			return fmt.Errorf("tb %d: defined twice", id)
		}
		if err := d.steps(&b); err != nil {
			return fmt.Errorf("tb %d: %w", id, err)
		}
		blocks[id] = b
		return nil
	})
	if err != nil {
		return err
	}
	for id := range len(blocks) {
		b, ok := blocks[id]
		if !ok {
			return fmt.Errorf("tb %d: missing; the gpu has %d thread blocks", id, len(blocks))
		}
		g.Blocks = append(g.Blocks, b)
	}
	return nil
}

func (d *decoder) steps(b *Block) error {
	return d.children("step", func(a *attributes) error {
		s := a.number("s", 0, maxPieces)
		if a.err == nil && s != len(b.Steps) {
			return fmt.Errorf("step %d: s: \"%d\", want steps numbered in order", len(b.Steps), s)
		}
		st := Step{
			Kind:  a.kind("type"),
			Src:   schedule.Ref{Buf: a.buffer("srcbuf"), Chunk: a.number("srcoff", -1, maxPlaces)},
			Dst:   schedule.Ref{Buf: a.buffer("dstbuf"), Chunk: a.number("dstoff", -1, maxPlaces)},
			Count: a.number("cnt", 0, maxPieces), DepBlock: a.number("depid", -1, maxPieces),
			DepStep: a.number("deps", -1, maxPieces), HasDep: a.flag("hasdep"),
		}
		if a.err != nil {
			return fmt.Errorf("step %d: %w", len(b.Steps), a.err)
		}
		b.Steps = append(b.Steps, st)
		return d.children("nothing", func(*attributes) error { return nil })
	})
}

// attributes holds the attributes of an element and the first error in reading them.
type attributes struct {
	values map[string]string
	err    error
}

func newAttributes(e xml.StartElement) (*attributes, error) {
	a := &attributes{values: make(map[string]string, len(e.Attr))}
	for _, x := range e.Attr {
		if _, twice := a.values[x.Name.Local]; twice {
			return nil, fmt.Errorf("%s: defined twice", brief.Text(x.Name.Local, maxQuoted))
		}
		a.values[x.Name.Local] = x.Value
	}
	return a, nil
}

func (a *attributes) fail(name, format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...))
	}
}

func (a *attributes) need(name string) string {
	v, ok := a.values[name]
	if !ok {
		a.fail(name, "missing")
	}
	return v
}

func (a *attributes) number(name string, low, high int) int {
	text := a.need(name)
	v, err := strconv.Atoi(text)
	if err != nil || v < low || v > high {
		a.fail(name, "%q, want a number from %d to %d", brief.Text(text, maxQuoted), low, high)
		return low
	}
	return v
}

func (a *attributes) optional(name string, otherwise int64) int64 {
	text, ok := a.values[name]
	if !ok {
		return otherwise
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < otherwise {
		a.fail(name, "%q, want a number of at least %d", brief.Text(text, maxQuoted), otherwise)
	}
	return v
}

func (a *attributes) flag(name string) bool {
	text := a.need(name)
	if text != "0" && text != "1" {
		a.fail(name, "%q, want 0 or 1", brief.Text(text, maxQuoted))
	}
	return text == "1"
}

func (a *attributes) kind(name string) Kind {
	text := a.need(name)
	k := slices.Index(kindNames[:], text)
	if k < 0 {
		a.fail(name, "%q, want one of %v", brief.Text(text, maxQuoted), kindNames)
		return Nop
	}
	return Kind(k)
}

func (a *attributes) buffer(name string) schedule.Buffer {
	text := a.need(name)
	b := slices.Index(bufferNames[:], text)
	if b < 0 {
		a.fail(name, "%q, want i, o or s", brief.Text(text, maxQuoted))
		return schedule.Input
	}
	return schedule.Buffer(b)
}

func (a *attributes) collective(name string) schedule.Collective {
	text := a.need(name)
	if text == "reduce_scatter" { // the name in msccl-tools; runtimes use reducescatter
		return schedule.ReduceScatter
	}
	c, err := schedule.ParseCollective(text)
	if err != nil {
		a.fail(name, "%q is not a collective", brief.Text(text, maxQuoted))
	}
	return c
}
