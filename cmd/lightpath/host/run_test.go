package host

import (
	"fmt"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
)

// lightpath is the commands of this room.
var lightpath = clitest.Of(NewRun, NewRanks, NewDoctor, NewTopo)

func TestRun(t *testing.T) {
	o := lightpath.Run(t, "", "run", "-n", "2", "--preload=false", "--", "sh", "-c",
		"echo $RANK of $WORLD_SIZE; echo oops >&2")
	if o.Status != 0 || !strings.Contains(o.Stdout, "[0] 0 of 2\n") || !strings.Contains(o.Stdout, "[1] 1 of 2\n") ||
		strings.Count(o.Stderr, "oops") != 2 {
		t.Errorf("run: %+v", o)
	}
}

// TestRunEnds: a rank that fails ends the others at once, and the children of all, which still hold their output.
func TestRunEnds(t *testing.T) {
	o := lightpath.Run(t, "", "run", "-n", "2", "--preload=false", "--", "sh", "-c",
		"sleep 3600 & test $RANK = 0 || exit 3; wait")
	if o.Status != cli.ExitNo || !strings.Contains(o.Stderr, "rank 1: exit status 3") {
		t.Errorf("%+v", o)
	}
}

// TestLongLine: a rank that writes a line of several MiB is not held up, and all its bytes arrive.
func TestLongLine(t *testing.T) {
	const size = 3 << 20
	o := lightpath.Run(t, "", "run", "-n", "1", "--preload=false", "--", "sh", "-c",
		fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo; echo end", size))
	if o.Status != 0 || strings.Count(o.Stdout, "x") != size || !strings.HasSuffix(o.Stdout, "[0] end\n") {
		t.Errorf("status %d, %d bytes, %d of them x; errors %q", o.Status, len(o.Stdout), strings.Count(o.Stdout, "x"),
			o.Stderr)
	}
}
