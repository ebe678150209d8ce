package scpi

import (
	"strings"
	"testing"

	"lightpath/ocsctl/device"
)

// FuzzExecute: whatever a client says, the table stays a matching, answers are lines, and the error
// queue is bounded.
func FuzzExecute(f *testing.F) {
	for _, s := range []string{
		"*IDN?;*CLS;*OPC?;*RST", ":OXC:SWITch:CONNect:ADD (@1,2,3),(@9,10,11);STATe?",
		":oxc:swit:conn:only (@1:4),(@5:8);:pmon:pow? (@5)",
		":oxc:swit:conn:sub (@1),(@);port? 3;:oxc:swit:disc:all", ":syst:err:all?;err?", ";;:;?:?",
		":oxc:swit:port:stat? (@0,65535)",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\r\n") || len(line) > maxLine {
			t.Skip() // the reader ends a line there
		}
		d, err := device.New(device.Config{Ports: 4, Preset: "plzt-ns"})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		s := &session{d: d}
		answer := s.execute(t.Context(), line) + ";" + s.popErrors(maxErrors)
		if strings.ContainsAny(answer, "\r\n") {
			t.Errorf("%q: answer of several lines %q", line, answer)
		}
		if err := d.Map().Validate(4); err != nil || len(s.errors) > maxErrors {
			t.Errorf("%q: %v, %d errors", line, err, len(s.errors))
		}
	})
}
