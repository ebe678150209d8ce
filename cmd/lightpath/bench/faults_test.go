package bench

import (
	"os"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
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
		if o := lightpath.Run(t, "", c.args...); o.Status != cli.ExitUsage || !strings.Contains(o.Stderr, c.says) ||
			strings.Count(o.Stderr, "\n") != 1 {
			t.Errorf("%q: %+v", c.args, o)
		}
	}
}
