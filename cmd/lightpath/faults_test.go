package main

import (
	"os"
	"strings"
	"testing"
)

func TestFaultsRefuses(t *testing.T) {
	says := "need root"
	if os.Geteuid() == 0 {
		says = "lightpath-rank" // which is not beside this program
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"faults", "--json", "--markdown"}, "--markdown"},
		{[]string{"faults", "none"}, "none"},
		{[]string{"faults"}, says},
	} {
		if o := command(t, "", c.args...); o.status != exitUsage || !strings.Contains(o.stderr, c.says) ||
			strings.Count(o.stderr, "\n") != 1 {
			t.Errorf("%q: %+v", c.args, o)
		}
	}
}
