package trace

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// sample is a trace of a few actors with each kind of line.
func sample() *Trace {
	ms := func(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }
	t := &Trace{}
	add := func(sent, at float64, k Kind, from, to, text string) {
		t.Lines = append(t.Lines, Line{Sent: ms(sent), At: ms(at), Kind: k, From: from, To: to, Text: text})
	}
	add(0, 0, Internal, "", "controller 1", "starts")
	add(0, 0.4, Message, "controller 1", "etcd", "campaign, lease 3")
	add(0.4, 0.9, Message, "etcd", "controller 1", "lease 3 granted, fencing token 1")
	add(0, 1, Internal, "", "job 9 rank 0", "a step that no later line depends on")
	add(1, 1.4, Message, "operator", "controller 1", "set plane 0 to ring:1, because the operator asked for it politely")
	add(0.9, 2, Message, "job 0 rank 1", "controller 1", "demand 0x3")
	add(2, 2.6, Message, "controller 1", "plane 0", "switch to epoch 7")
	add(2, 2.6, Message, "controller 1", "plane 1", "switch to epoch 7")
	add(2.6, 2.6, Internal, "", "plane 0", "dark from epoch 6: mirrors of ports 0, 1, 2 and 3 move, port 4 stays")
	add(3, 3, Fault, "", "controller 1", "crash")
	add(3.1, 3.1, Fault, "", "", "partition: {controller 1} | {etcd, controller 2}")
	add(3, 34, Fault, "plane 1", "controller 1", "answer lost")
	add(34, 34.2, Message, "controller 2", "etcd", "campaign, lease 4")
	add(34.2, 34.9, Message, "etcd", "controller 2", "lease 4 granted, fencing token 2")
	add(34.9, 36, Message, "controller 2", "job 0 rank 1", "grant 0x3 in epoch 7")
	add(34.9, 36.5, Message, "controller 2", "plane 0", "switch to epoch 8")
	add(36.7, 36.7, Violation, "", "plane 0", "light-by-ticket: plane 0 carries frames of job 0 in epoch 8, but the "+
		"ticket 0x3 of job 0 names epoch 7; the leader granted it at 34.9ms and switched the plane before job 0 released it")
	return t
}

// words returns the texts of a picture.
func words(t *testing.T, picture []byte) string {
	t.Helper()
	var b strings.Builder
	d := xml.NewDecoder(strings.NewReader(string(picture)))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return strings.Join(strings.Fields(b.String()), " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			b.Write(text)
		}
	}
}

func TestDiagram(t *testing.T) {
	trace := sample()
	picture := trace.Diagram(100)
	text := words(t, picture)
	violation := trace.Lines[len(trace.Lines)-1].Text
	for _, want := range []string{violation, "operator", "etcd", "job 0 rank 1", "36.7ms", "switch to epoch 8",
		"Left out: 2 lines on which the violation cannot depend."} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if strings.Contains(text, "no later line depends") {
		t.Error("a line is drawn on which the violation does not depend")
	}
}

// TestDiagramOfManyLines checks that a long trace is cut at its beginning, and that a sentence says so.
func TestDiagramOfManyLines(t *testing.T) {
	text := words(t, sample().Diagram(5))
	for _, want := range []string{"5 lines", "Left out: 10 earlier lines, 2 lines on which"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if empty := words(t, (&Trace{}).Diagram(5)); !strings.Contains(empty, "0 lines") {
		t.Error(empty)
	}
}

// TestDiagramRowsDoNotOverlap checks that no text stands in the row of another.
func TestDiagramRowsDoNotOverlap(t *testing.T) {
	d := diagram{lines: sample().Lines}
	d.place()
	for i := 1; i < len(d.y); i++ {
		if top := d.y[i] - (d.end[i] - d.y[i]); !d.lines[i].isArrow() && top < d.end[i-1] || d.y[i] < d.end[i-1] {
			t.Errorf("line %d begins at %v, and the line before ends at %v", i, d.y[i], d.end[i-1])
		}
	}
}
