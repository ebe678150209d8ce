package planning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/msccl"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
	"lightpath/shim/planning"
	"lightpath/shim/settings"
)

// warmFlags are the flags of `plan cache warm` as typed; parse turns them into a warming.
type warmFlags struct {
	fabric, algorithm  string
	collectives, bytes []string
	datatype, planner  string
	ranks, root        int
	limit              time.Duration
	asJSON             bool
}

// warming lists the calls to plan, in order.
type warming struct {
	config *settings.Config
	fabric *fabric.Fabric
	ranks  int
	calls  []planning.Asked
	hints  []string // environment that jobs need to find the plans
}

func newCacheWarm(open func() (*cache.Cache, error)) *cobra.Command {
	f := &warmFlags{}
	cmd := &cobra.Command{
		Use:   "warm --fabric fabric.yaml --collective C,... --bytes S,...",
		Short: "Plan calls ahead of the jobs that make them",
		Long: `Plans calls ahead, under the keys that jobs look up. The job's rank r must be at port r of the
fabric, with the environment in the last line of the output. The command keeps existing plans. Sizes share a
plan if that costs at most LIGHTPATH_PLAN_TOLERANCE (1 %). So few sizes are planned, and sizes between the
given ones are covered too. Exits 1 if a call has no plan; jobs run such a call on packet planes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w, err := f.parse(cmd)
			if err != nil {
				return err
			}
			c, err := open()
			if err != nil {
				return err
			}
			return w.run(cmd, c, f.asJSON)
		},
	}
	fl := cmd.Flags()
	cli.FabricFlag(cmd, &f.fabric, "fabric file")
	fl.StringSliceVar(&f.collectives, "collective", nil, "collectives: allreduce, alltoall, ...")
	fl.StringVar(&f.algorithm, "algorithm", "",
		"algorithm of all of them, or auto: choose the best of each (default LIGHTPATH_ALGORITHM, else as jobs choose)")
	fl.IntVar(&f.ranks, "ranks", 0, "ranks of the communicator (default the fabric's)")
	fl.IntVar(&f.root, "root", 0, "root of collectives that have one")
	fl.StringSliceVar(&f.bytes, "bytes", nil, "sizes as nccl-tests counts them, such as 32MiB; 1M..64M is 1M, 2M, 4M, ...")
	fl.StringVar(&f.datatype, "type", "float", "element type")
	fl.StringVar(&f.planner, "planner", "", "planner (default LIGHTPATH_PLANNER, else auto)")
	fl.DurationVar(&f.limit, "time-limit", 0, "most time for one plan (default LIGHTPATH_PLAN_LIMIT, else 2s)")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

func (f *warmFlags) parse(cmd *cobra.Command) (*warming, error) {
	cfg, err := settings.Load()
	if err != nil {
		return nil, err
	}
	w := &warming{config: cfg, ranks: f.ranks}
	if err := cli.Required(cmd.Flags(), "fabric", "collective", "bytes"); err != nil {
		return nil, err
	}
	if w.fabric, err = cli.LoadFabric(f.fabric); err != nil {
		return nil, err
	}
	if w.ranks == 0 {
		w.ranks = w.fabric.Ranks
	}
	if w.ranks < 2 || w.ranks > w.fabric.Ranks {
		return nil, fmt.Errorf("--ranks: %d on a fabric of %d; at least 2 are needed", w.ranks, w.fabric.Ranks)
	}
	if f.planner != "" {
		if err := cli.CheckPlanner(f.planner); err != nil {
			return nil, err
		}
		cfg.Plan.Planner = f.planner
		w.hints = append(w.hints, "LIGHTPATH_PLANNER="+f.planner)
	}
	if err := cmp.Or(cli.AtLeast("--time-limit", f.limit, 0), cli.Within("--root", f.root, 0, w.ranks-1)); err != nil {
		return nil, err
	}
	if f.limit > 0 {
		cfg.Plan.Limit = f.limit
		w.hints = append(w.hints, "LIGHTPATH_PLAN_LIMIT="+f.limit.String())
	}
	return w, f.parseCalls(cmd.Context(), w)
}

// parseCalls lists every size of every collective.
func (f *warmFlags) parseCalls(ctx context.Context, w *warming) error {
	elem, err := datatype.ParseType(f.datatype)
	if err != nil {
		return fmt.Errorf("--type: %w", err)
	}
	sizes, err := parseSizes(f.bytes)
	if err != nil {
		return fmt.Errorf("--bytes: %w", err)
	}
	var choices []string
	for _, name := range f.collectives {
		c, err := schedule.ParseCollective(name)
		if err != nil {
			return fmt.Errorf("--collective: %w", err)
		}
		if f.algorithm == "auto" {
			algorithm, err := w.choose(ctx, c, f.root, sizes)
			if err != nil {
				return err
			}
			choices = append(choices, name+":"+algorithm)
		} else if f.algorithm != "" {
			if err := msccl.Check(c, f.algorithm, w.ranks); err != nil {
				return fmt.Errorf("--algorithm: %w", err)
			}
			choices = append(choices, name+":"+f.algorithm)
		}
		root := 0
		if c.Rooted() {
			root = f.root
		}
		for _, bytes := range sizes {
			count := bench.Count(c, bytes, elem, w.ranks)
			if count < 1 {
				return fmt.Errorf("--bytes: %d are less than one element of %s per block", bytes, elem)
			}
			w.calls = append(w.calls, planning.Asked{Collective: c, Type: elem, Count: uint64(count), Root: root})
		}
	}
	if choices == nil {
		return nil
	}
	algorithms := strings.Join(choices, ",")
	w.hints = append(w.hints, "LIGHTPATH_ALGORITHM="+algorithms)
	if err := w.config.SetAlgorithms(algorithms); err != nil {
		return fmt.Errorf("--algorithm: %w", err)
	}
	return nil
}

// parseSizes reads sizes and ranges of sizes, which double.
func parseSizes(items []string) ([]int64, error) {
	var sizes []int64
	for _, item := range items {
		from, to, isRange := strings.Cut(item, "..")
		lo, err := bench.ParseBytes(from)
		if err != nil {
			return nil, err
		}
		hi := lo
		if isRange {
			if hi, err = bench.ParseBytes(to); err != nil {
				return nil, err
			}
		}
		if lo < 1 || hi < lo {
			return nil, fmt.Errorf("%q is neither a positive size nor a range of them, as 1M..64M", item)
		}
		spec := bench.Spec{MinBytes: lo, MaxBytes: hi, Factor: 2}
		sizes = append(sizes, spec.Sizes()...)
	}
	return sizes, nil
}

// warmRow is one call in `plan cache warm --json`, with its completion time cct_us and all sizes that share its plan.
type warmRow struct {
	cacheRow
	Bytes float64 `json:"bytes"`
	// Cached: the plan was there before.
	Cached bool `json:"cached"`
}

// run plans the missing plans and reports every call.
func (w *warming) run(cmd *cobra.Command, c *cache.Cache, asJSON bool) error {
	show := cli.CountLine()
	made, err := planning.Warm(cmd.Context(), w.config, w.fabric, w.ranks, w.calls, c, func(plannings int) {
		show("%d calls, %d plans made", len(w.calls), plannings)
	})
	show("")
	if err != nil {
		return err
	}
	rows := make([]warmRow, 0, len(made))
	var bad error
	for i := range made {
		m := &made[i]
		if m.Err != nil {
			bad = errors.Join(bad, fmt.Errorf("%v of %d %v: %w", m.Call.Collective, m.Call.Count, m.Call.Type, m.Err))
			continue
		}
		row := warmRow{rowOf(m.Entry), cli.CallBytes(&m.Entry.Key, int64(m.Call.Count)*int64(m.Call.Type.Size())), m.Cached}
		row.CCTUS, row.LowerBound = m.Plan.CCTUS, m.Plan.LowerBoundUS
		rows = append(rows, row)
	}
	if err := cli.Show(asJSON, rows, func() { printWarmed(rows) }); err != nil {
		return err
	}
	if len(rows) > 0 {
		dir, err := filepath.Abs(c.Dir())
		if err != nil {
			dir = c.Dir()
		}
		fmt.Fprintf(os.Stderr, "for jobs with LIGHTPATH_PLAN_DIR=%s\n", strings.Join(append([]string{dir}, w.hints...), " "))
	}
	if bad != nil {
		return cli.No(bad)
	}
	return nil
}

func printWarmed(rows []warmRow) {
	cli.Printf("%-13s %-20s %14s %-9s %12s %12s  %-6s %s\n", "collective", "algorithm", "bytes", "planner", "CCT (us)",
		"bound (us)", "", "plan, and the sizes that share it")
	for _, r := range rows {
		was := "new"
		if r.Cached {
			was = "cached"
		}
		cli.Printf("%-13s %-20s %14.0f %-9s %12.6g %12.6g  %-6s %.16s %.0f..%.0f\n", r.Key.Collective, r.Key.Algorithm,
			r.Bytes,
			r.PlanPlanner, r.CCTUS, r.LowerBound, was, r.Name, r.MinBytes, r.MaxBytes)
	}
}
