package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/bench/peers"
	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/plans"
)

// peersFlags are the flags as typed.
type peersFlags struct {
	collectives, transports, contenders []string
	ranks                               []int
	sizes                               []string
	minBytes, maxBytes                  string
	factor                              float64
	datatype, op                        string
	rounds                              int
	hosts                               peers.Hosts
	memory                              string
	busy                                bool
	python, out                         string
	timeout, budget                     time.Duration
	resume                              bool
}

// libraryMemory is --memory's for buffers that each library allocates.
const libraryMemory = "library"

func newPeers() *cobra.Command {
	f := &peersFlags{}
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Time Lightpath beside Open MPI, MPICH and Gloo, by turns in one run",
		Long: `Times collectives of Lightpath and of other libraries by turns, sample by sample. Rank processes that
are not timed wait without using a processor. All libraries have the same kind of buffers and numbers of
iterations, and the command checks their results. It prints nccl-tests' columns, one for every library, and
the ratio (time of the best peer / Lightpath's) with its interval. --out writes JSON, Markdown and pictures.

With --memory library, ncclMemAlloc and MPI_Alloc_mem allocate the buffers; Gloo has no such call.
lightpath-alloc is Lightpath with buffers of ncclMemAlloc, shown beside the comparison. Gloo is PyTorch's and
knows TCP only. Without --peers, a library that is not installed is left out, and a line says how to install
it. Exits 1 if an element of Lightpath's is wrong.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Needs(cmd.Flags(), "out", "resume"); err != nil {
				return err
			}
			o, err := f.parse()
			if err != nil {
				return err
			}
			if f.resume {
				if o.Before, err = peers.Read(f.out); err != nil {
					return fmt.Errorf("--resume: %w", err)
				}
			}
			return runPeers(cmd.Context(), f, o)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.collectives, "collective", []string{"allreduce", "alltoall", "allgather", "reducescatter",
		"broadcast"}, "collectives")
	fl.StringSliceVar(&f.transports, "transport", []string{"shm"}, "shm, tcp")
	fl.IntSliceVarP(&f.ranks, "ranks", "n", []int{2, 4, 8}, "numbers of ranks")
	fl.StringSliceVar(&f.sizes, "sizes", nil, "sizes, instead of -b, -e and -f")
	fl.StringVarP(&f.minBytes, "minbytes", "b", "8", "smallest size")
	fl.StringVarP(&f.maxBytes, "maxbytes", "e", "64M", "largest size, always among the sizes")
	fl.Float64VarP(&f.factor, "stepfactor", "f", 4, "factor between sizes")
	fl.StringVarP(&f.datatype, "type", "d", "float", "element type: float, half, bfloat16, ...")
	fl.StringVarP(&f.op, "op", "o", "sum", "reduction operator")
	fl.StringSliceVar(&f.contenders, "peers", nil,
		"libraries: openmpi, openmpi-ucx, ucc, mpich, gloo, lightpath-alloc (default: all)")
	fl.IntVar(&f.rounds, "rounds", 5, "samples of a point")
	fl.StringVar(&f.memory, "memory", bench.PlainBuffers,
		"buffers: plain (pages that no library knows) or library (that each library allocates)")
	fl.StringVar(&f.hosts.Tag, "hosts", "", "ranks run in the namespaces TAG-0, TAG-1, ... of bench/hosts.sh, over TCP")
	fl.IntVar(&f.hosts.Planes, "planes", 1, "interfaces of a host (--hosts)")
	fl.BoolVar(&f.busy, "busy", false, "other work shares the processors: Open MPI's ranks yield while they wait, "+
		"as if ranks outnumbered processors")
	fl.StringVar(&f.python, "python", "", "interpreter that has PyTorch (default: python3, else /usr/bin/python3)")
	fl.StringVar(&f.out, "out", "", "directory for peers.json, peers.md and pictures")
	fl.DurationVar(&f.timeout, "timeout", 2*time.Minute, "of one sample")
	fl.DurationVar(&f.budget, "budget", 0, "begin no more points after this time (0: no limit)")
	fl.BoolVar(&f.resume, "resume", false,
		"continue an earlier run with the same --out, --rounds, --memory, --hosts and --planes")
	return cmd
}

func (f *peersFlags) parse() (*peers.Options, error) {
	o := &peers.Options{Transports: f.transports, Ranks: f.ranks, Contenders: f.contenders, Rounds: f.rounds,
		LibraryMemory: f.memory == libraryMemory, Busy: f.busy, Hosts: f.hosts, Timeout: f.timeout, Budget: f.budget}
	for _, name := range f.collectives {
		c, err := schedule.ParseCollective(name)
		if err != nil {
			return nil, fmt.Errorf("--collective: %w", err)
		}
		o.Collectives = append(o.Collectives, c)
	}
	var err error
	if o.Type, err = datatype.ParseType(f.datatype); err != nil {
		return nil, fmt.Errorf("--type: %w", err)
	}
	if o.Op, err = datatype.ParseOp(f.op); err != nil {
		return nil, fmt.Errorf("--op: %w", err)
	}
	if o.Sizes, err = f.sizeList(); err != nil {
		return nil, err
	}
	for _, n := range f.ranks {
		if err := cli.Within("--ranks", n, 2, plans.MaxRanks); err != nil {
			return nil, err
		}
	}
	for _, t := range f.transports {
		switch {
		case t != "shm" && t != "tcp":
			return nil, fmt.Errorf("--transport: %q is neither shm nor tcp", t)
		case t != "tcp" && f.hosts.Tag != "":
			return nil, fmt.Errorf("--hosts: needs --transport tcp, not %s", t)
		}
	}
	if f.memory != bench.PlainBuffers && f.memory != libraryMemory {
		return nil, fmt.Errorf("--memory: %q is neither %s nor %s", f.memory, bench.PlainBuffers, libraryMemory)
	}
	if err := cmp.Or(cli.AtLeast("--planes", f.hosts.Planes, 1), cli.AtLeast("--rounds", f.rounds, 1),
		cli.Positive("--timeout", f.timeout)); err != nil {
		return nil, err
	}
	worker, err := cli.SiblingFile("bin", "lightpath-rank")
	o.Programs = peers.Programs{Bin: filepath.Dir(worker), Python: f.python}
	return o, err
}

func (f *peersFlags) sizeList() (sizes []int64, err error) {
	if len(f.sizes) > 0 {
		for _, text := range f.sizes {
			n, err := bench.ParseBytes(text)
			if err != nil {
				return nil, fmt.Errorf("--sizes: %w", err)
			}
			sizes = append(sizes, n)
		}
		return sizes, nil
	}
	s := bench.Spec{Factor: f.factor}
	if s.MinBytes, err = bench.ParseBytes(f.minBytes); err != nil {
		return nil, fmt.Errorf("-b: %w", err)
	}
	if s.MaxBytes, err = bench.ParseBytes(f.maxBytes); err != nil {
		return nil, fmt.Errorf("-e: %w", err)
	}
	if s.MaxBytes < s.MinBytes || s.MinBytes < 1 || !(s.Factor > 1) {
		return nil, fmt.Errorf("sizes %s to %s by a factor of %v are none", f.minBytes, f.maxBytes, f.factor)
	}
	if sizes = s.Sizes(); sizes[len(sizes)-1] != s.MaxBytes {
		sizes = append(sizes, s.MaxBytes)
	}
	return sizes, nil
}

func runPeers(ctx context.Context, f *peersFlags, o *peers.Options) error {
	began := time.Now()
	o.Progress = func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		fmt.Fprintf(os.Stderr, "%6s  %s\n", strconv.Itoa(int(time.Since(began).Seconds()))+"s", strings.TrimSpace(text))
	}
	if f.out != "" {
		o.Save = func(d *peers.Document) error { return d.Save(f.out) }
	}
	doc, err := peers.Run(ctx, o)
	if len(doc.Points) > 0 {
		doc.WriteText(cli.Stdout)
		if f.out != "" {
			paths, e := doc.Write(f.out)
			for _, p := range paths {
				cli.Println(p)
			}
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return cli.No(err)
	}
	if doc.Left > 0 {
		fmt.Fprintf(os.Stderr, "%d points are left: the same again with --resume\n", doc.Left)
	}
	if n := doc.Wrong(); n > 0 {
		return cli.No(fmt.Errorf("%d wrong elements of %s", n, peers.Subject))
	}
	return nil
}
