package bench

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// lightpath is the commands of this room.
var lightpath = clitest.Of(New, NewDemo, NewFaults, NewFigure, NewSimulate)

// TestBenchWrongResults: a wrong element on any rank makes the exit status 1, after the table and the document, which
// count it.
func TestBenchWrongResults(t *testing.T) {
	dir := t.TempDir()
	worker := filepath.Join(dir, "worker")
	script := `#!/bin/sh
rank=$(sed -n 's/^rank=//p' "$2")
echo '{"rank":'$rank',"collective":"allreduce","bytes":8,"count":2,"inplace":0,"time_us":5,"wrong":'$rank'}'
`
	if err := os.WriteFile(worker, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for ranks, wrong := range map[int]int64{1: 0, 3: 3} {
		f := &flags{jsonOut: filepath.Join(dir, "out.json"), check: 1}
		o := &bench.Options{Ranks: bench.Ranks{N: ranks, Transport: "shm", Worker: worker}, Specs: []bench.Spec{{
			Collective: schedule.AllReduce, Type: datatype.Float32, Op: datatype.Sum, MinBytes: 8, MaxBytes: 8, Factor: 2,
			Iters: 1,
			Check: true, OutOfPlace: true,
		}}}
		cmd := New()
		cmd.SetContext(t.Context())
		err := run(cmd, f, o)
		if wrong == 0 && err != nil {
			t.Errorf("nothing wrong: %v", err)
		}
		if wrong > 0 && (!errors.Is(err, cli.ErrNo) || !strings.Contains(err.Error(),
			"allreduce of 8 bytes: 3 wrong elements")) {
			t.Errorf("%d wrong: %v", wrong, err)
		}
		var doc bench.Document
		err = json.Unmarshal([]byte(clitest.Content(t, f.jsonOut)), &doc)
		if err != nil || len(doc.Results) != 1 || *doc.Results[0].Wrong != wrong || doc.Ranks != ranks {
			t.Errorf("%+v, %v; want %d wrong of %d ranks", doc, err, wrong, ranks)
		}
	}
}

// parseBench parses the arguments of `lightpath bench`, up to the start of ranks.
func parseBench(t *testing.T, args ...string) (*bench.Options, error) {
	t.Helper()
	cmd := New()
	var o *bench.Options
	f := &flags{}
	cmd.ResetFlags()
	f.register(cmd)
	registerForeign(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := refuseForeign(cmd.Flags())
		if err == nil {
			o, err = f.options(args[0], cmd.Flags().Changed("ranks"))
		}
		if err != nil && strings.Contains(err.Error(), "lightpath-rank") {
			err = nil // the test binary has no commands beside it
		}
		return err
	}
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	return o, cmd.Execute()
}

// clearLaunchers removes the variables of launchers and of the runtime that bench reads.
func clearLaunchers(t *testing.T) {
	for _, name := range []string{
		"OMPI_COMM_WORLD_RANK", "RANK", "SLURM_PROCID", "PMI_RANK", "LIGHTPATH_TRANSPORT", cli.FabricVariable,
	} {
		t.Setenv(name, "")
	}
}

// TestBenchTransport: --transport comes before LIGHTPATH_TRANSPORT, and an unknown name is refused from both.
func TestBenchTransport(t *testing.T) {
	clearLaunchers(t)
	for _, c := range []struct{ variable, flag, want, says string }{
		{"", "", "auto", ""}, {"tcp", "", "tcp", ""}, {"tcp", "shm", "shm", ""}, {"", "rdma", "rdma", ""},
		{"foo", "", "", `LIGHTPATH_TRANSPORT: "foo" is none of`}, {"tcp", "foo", "", `--transport: "foo" is none of`},
		{"ebpf", "", "", "LIGHTPATH_TRANSPORT: ebpf needs a --fabric"},
	} {
		t.Setenv("LIGHTPATH_TRANSPORT", c.variable)
		o, err := parseBench(t, "allreduce", "--transport="+c.flag)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q, --transport=%s: %v, want an error with %q", c.variable, c.flag, err, c.says)
			}
		} else if err != nil || o.Ranks.Transport != c.want {
			t.Errorf("%q, --transport=%s: %+v, %v; want %s", c.variable, c.flag, o, err, c.want)
		}
	}
}

// TestBenchAll: "all" types and operators are a spec each, as in nccl-tests.
func TestBenchAll(t *testing.T) {
	clearLaunchers(t)
	types, ops := int(datatype.NumTypes), int(datatype.NumOps)
	for _, c := range []struct {
		args string
		want int
	}{
		{"allreduce", 1}, {"allreduce -d all", types}, {"allreduce -o all", ops}, {"allreduce -d all -o all", types * ops},
		{"allgather -d all -o all", types}, // it has no operator
	} {
		o, err := parseBench(t, strings.Fields(c.args)...)
		if err != nil || len(o.Specs) != c.want {
			t.Errorf("%s: %+v, %v; want %d specs", c.args, o, err, c.want)
		}
	}
}

// TestBenchForeignFlags: a flag of nccl-tests is accepted if it asks for what bench does, or refused by name.
func TestBenchForeignFlags(t *testing.T) {
	clearLaunchers(t)
	for args, says := range map[string]string{
		"-g 1": "", "-t 1": "", "-m 1": "", "-J out.json": "", "-G 0": "",
		"-g 2": "-g: ", "-t 4": "-t: ", "-m 10": "-m: ", "-R 1": "-R: ", "-z 0": "-z: ", "--stepbytes 8": "--stepbytes: ",
	} {
		_, err := parseBench(t, append([]string{"allreduce"}, strings.Fields(args)...)...)
		if says == "" && err != nil || says != "" && (err == nil || !strings.HasPrefix(err.Error(), says)) {
			t.Errorf("%s: %v, want an error that begins with %q", args, err, says)
		}
	}
}

// TestBenchRanksOfLauncher: -n does not start ranks once more in every process of a launcher.
func TestBenchRanksOfLauncher(t *testing.T) {
	clearLaunchers(t)
	t.Setenv("OMPI_COMM_WORLD_RANK", "0")
	for _, c := range []struct {
		size, args string
		ranks      int
		launched   bool
	}{
		{"4", "", 4, true}, {"4", "-n 4", 4, true}, {"4", "-n 2", 0, false}, {"1", "-n 2", 2, false}, {"1", "", 1, true},
	} {
		t.Setenv("OMPI_COMM_WORLD_SIZE", c.size)
		o, err := parseBench(t, append([]string{"allreduce"}, strings.Fields(c.args)...)...)
		if c.ranks == 0 {
			if err == nil || !strings.Contains(err.Error(), "Open MPI started 4 ranks (OMPI_COMM_WORLD_RANK=0)") {
				t.Errorf("%s of %s: %v, want an error", c.args, c.size, err)
			}
		} else if err != nil || o.Ranks.N != c.ranks || (o.Ranks.World != nil) != c.launched {
			t.Errorf("%s of %s: %+v, %v; want %d ranks", c.args, c.size, o, err, c.ranks)
		}
	}
}

// TestBarrierJSON: standard output has the JSON alone.
func TestBarrierJSON(t *testing.T) {
	text := lightpath.Succeed(t, "", "bench", "barrier", "--ranks", "2", "--rounds", "1", "--carrier", "shm", "--json",
		"-")
	var rows []map[string]any
	if err := json.Unmarshal([]byte(text), &rows); err != nil || len(rows) != 2 {
		t.Errorf("%v: %q", err, text)
	}
}
