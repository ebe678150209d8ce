package topology

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/require"
	"lightpath/plans/delta"
)

// TestTopologyStops: after a signal, and after the time limit, long topology commands write the best result until then.
func TestTopologyStops(t *testing.T) {
	dir := t.TempDir()
	job, out := filepath.Join(dir, "job.json"), filepath.Join(dir, "out.json")
	lightpath.Succeed(t, "", "topology", "delta", "generate", "--model", "mixtral-8x22b", "--out", job)
	stop, cancel := context.WithCancelCause(t.Context())
	cancel(&cli.Stopped{Signal: syscall.SIGINT})
	files := " --in " + job + " --out " + out
	for _, c := range []struct {
		ctx    context.Context
		args   string
		status int
		says   string
	}{
		{stop, "topology delta plan" + files, 130, "stopped by SIGINT: the best topology until then"},
		{t.Context(), "topology delta plan --time-limit 1ns" + files, 0, ""},
		{stop, "topology delta exact --solver cbc" + files, 130,
			"stopped by SIGINT: the best topology, of the search until then"},
		{stop, "topology delta compare --json --models gpt-7b", 130, "stopped by SIGINT: the best rows until then"},
		{stop, "topology lumos simulate --jobs 20 --gpus 512 --fabrics best,clos-3-25.6", 130,
			"stopped by SIGINT without a result"},
	} {
		words := strings.Fields(c.args)
		cmd, args, err := lightpath().Find(words)
		require.NoError(t, err)
		require.NoError(t, cmd.ParseFlags(args))
		cmd.SetContext(c.ctx) // and no PersistentPreRun, which would end the process
		status, line := cli.Verdict(c.ctx, cmd.RunE(cmd, nil))
		if strings.Contains(line, "no solver") {
			continue
		}
		if status != c.status || line != c.says {
			t.Errorf("%s: status %d, %q", c.args, status, line)
		}
		if strings.Contains(c.args, out) {
			var r delta.Result
			if read(t, out, &r); r.MakespanUS < r.LowerBoundUS || len(r.Circuits) == 0 {
				t.Errorf("%s: %+v", c.args, r)
			}
		}
	}
}
