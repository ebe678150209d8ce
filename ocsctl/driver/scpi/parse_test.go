package scpi

import (
	"errors"
	"testing"

	"lightpath/ocsctl/driver"
)

// FuzzParse holds the parsers to: a value or ErrProtocol, and nothing larger than a switch.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"(@1,2),(@17,18)", "(@1),(@17);(@2),(@18)", "(@),(@)", "(@1:3),(@7:9)", "(E,D,F)",
		"(-3.1,-60.00)", `0,"No error"`, `-222,"Data out of range",-100,"x"`, ""} {
		f.Add(s, 2)
	}
	f.Fuzz(func(t *testing.T, reply string, n int) {
		check := func(err error) {
			if err != nil && !errors.Is(err, driver.ErrProtocol) {
				t.Errorf("%q: %v", reply, err)
			}
		}
		in, out, err := parseTable(reply)
		check(err)
		if len(in) != len(out) || len(in) > maxPorts {
			t.Errorf("%q: %d and %d ports", reply, len(in), len(out))
		}
		if err == nil { // what we write we read
			in2, out2, err := parseTable(listText(in) + "," + listText(out))
			if err != nil || len(in2) != len(in) || len(out2) != len(out) {
				t.Errorf("%q: again %d and %d ports, %v", reply, len(in2), len(out2), err)
			}
		}
		dbm, err := parsePowers(reply, n)
		check(err)
		if err == nil && len(dbm) != n {
			t.Errorf("%q: %d powers of %d", reply, len(dbm), n)
		}
		_, err = parseErrors(reply)
		check(err)
	})
}
