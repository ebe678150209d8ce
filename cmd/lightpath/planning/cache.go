package planning

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/cmd/lightpath/cli"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/plans/sizes"
)

// cacheDir is --dir, LIGHTPATH_PLAN_DIR, or the user's cache directory.
func cacheDir(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	if dir := os.Getenv("LIGHTPATH_PLAN_DIR"); dir != "" {
		return dir, nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("--dir: %w", err)
	}
	return filepath.Join(base, "lightpath", "plans"), nil
}

func newCache() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Make, list, show and remove cached plans",
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "cache directory (default LIGHTPATH_PLAN_DIR, else the user's cache)")
	open := func() (*cache.Cache, error) {
		path, err := cacheDir(dir)
		if err != nil {
			return nil, err
		}
		c, err := cache.Open(path)
		if err != nil {
			return nil, fmt.Errorf("--dir: %w", err)
		}
		return c, nil
	}
	existing := func() (*cache.Cache, error) { // only warm makes a directory
		if dir != "" {
			if _, err := os.Stat(dir); err != nil {
				return nil, fmt.Errorf("--dir: %w", err)
			}
		}
		return open()
	}
	cmd.AddCommand(newCacheList(existing), newCacheShow(existing), newCacheRemove(existing), newCacheWarm(open))
	return cmd
}

// cacheRow is one line of `plan cache ls --json`. Bytes are those of the call as nccl-tests
// counts them.
type cacheRow struct {
	Name       string    `json:"name"`
	Key        cache.Key `json:"key"`
	MinBytes   float64   `json:"min_bytes"`
	MaxBytes   float64   `json:"max_bytes"`
	MinCCTUS   float64   `json:"min_cct_us"` // of the smallest call
	CCTUS      float64   `json:"cct_us"`     // of the largest
	LowerBound float64   `json:"lower_bound_us"`
	Error      string    `json:"error,omitempty"`
	// Stale is the reason why no job will find the plan any more.
	Stale       string `json:"stale,omitempty"`
	SizeOfFile  int64  `json:"file_bytes,omitempty"`
	PlanPlanner string `json:"planner"`
}

func rowOf(e *cache.Entry) cacheRow {
	low, high := e.Span.Low.Plan, e.Span.High.Plan
	return cacheRow{
		Name: e.Name(), Key: e.Key, MinBytes: cli.CallBytes(&e.Key, e.Span.Min), MaxBytes: cli.CallBytes(&e.Key, e.Span.Max),
		MinCCTUS: low.CCTUS, CCTUS: high.CCTUS, LowerBound: high.LowerBoundUS, PlanPlanner: high.Planner,
	}
}

// staleness returns a function that returns why no job will find a cached file any more, or "" if one may. It considers
// jobs on the fabric of the file at path, if any, and on fabrics of other names.
func staleness(path string) (func(in *cache.Info) string, error) {
	var fab *fabric.Fabric
	var digest cache.Hash
	if path != "" {
		var err error
		if fab, err = cli.LoadFabric(path); err != nil {
			return nil, err
		}
		digest = cache.Sum([]byte(fab.Digest()))
	}
	return func(in *cache.Info) string {
		switch {
		case errors.Is(in.Err, cache.ErrStale):
			return "written by another release"
		case in.Err != nil:
			return ""
		case in.Entry.Key.PlannerVersion != planner.Version:
			return fmt.Sprintf("planners are at version %d, not %d", planner.Version, in.Entry.Key.PlannerVersion)
		case fab != nil && in.Entry.Key.FabricName == fab.Name && in.Entry.Key.Fabric != digest:
			return fmt.Sprintf("fabric %q has changed", fab.Name)
		}
		return ""
	}, nil
}

const fabricUsage = "fabric file: plans for an earlier form of it are stale"

func newCacheList(open func() (*cache.Cache, error)) *cobra.Command {
	var asJSON bool
	var fabricPath string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List plans and the sizes that they serve; mark stale plans; exit 1 if a file is unusable",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			stale, err := staleness(fabricPath)
			if err != nil {
				return err
			}
			c, err := open()
			if err != nil {
				return err
			}
			list, err := c.List()
			if err != nil {
				return err
			}
			rows := make([]cacheRow, len(list))
			var bad error
			for i := range list {
				in := &list[i]
				if in.Err == nil {
					rows[i] = rowOf(in.Entry)
				} else {
					rows[i] = cacheRow{Name: in.Name, Error: in.Err.Error()}
				}
				if rows[i].Stale = stale(in); in.Err != nil && rows[i].Stale == "" {
					bad = errors.Join(bad, in.Err)
				}
				rows[i].SizeOfFile = in.Bytes
			}
			slices.SortStableFunc(rows, compareRows)
			if err := cli.Show(asJSON, rows, func() { printCache(rows) }); err != nil {
				return err
			}
			if bad != nil {
				return cli.No(bad)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.FabricFlag(cmd, &fabricPath, fabricUsage)
	return cmd
}

// compareRows orders plans by collective, fabric and size, after files that are no plans.
func compareRows(a, b cacheRow) int {
	return cmp.Or(
		cmp.Compare(a.Key.Collective, b.Key.Collective), cmp.Compare(a.Key.Algorithm, b.Key.Algorithm),
		cmp.Compare(a.Key.Ranks, b.Key.Ranks), cmp.Compare(a.Key.Root, b.Key.Root), cmp.Compare(a.MinBytes, b.MinBytes),
	)
}

func printCache(rows []cacheRow) {
	cli.Printf("%-16s %-13s %-20s %5s %24s %-9s %22s %14s\n", "name", "collective", "algorithm", "ranks", "bytes",
		"planner", "CCT (us)", "bound (us)")
	for _, r := range rows {
		switch {
		case r.Error != "" && r.Stale != "":
			cli.Printf("%-16.16s stale: %s\n", r.Name, r.Stale)
			continue
		case r.Error != "":
			cli.Printf("%-16.16s unusable: %s\n", r.Name, r.Error)
			continue
		}
		k := r.Key
		cct := fmt.Sprintf("%.6g", r.CCTUS)
		if r.MinBytes < r.MaxBytes {
			cct = fmt.Sprintf("%.6g..%.6g", r.MinCCTUS, r.CCTUS)
		}
		cli.Printf("%-16.16s %-13s %-20s %5d %24s %-9s %22s %14.6g", r.Name, k.Collective, k.Algorithm, k.Ranks,
			fmt.Sprintf("%.0f..%.0f", r.MinBytes, r.MaxBytes), r.PlanPlanner, cct, r.LowerBound)
		if r.Stale != "" {
			cli.Printf("  stale: %s", r.Stale)
		}
		cli.Println()
	}
}

// findCached returns the entry whose name begins with prefix; it must be the only one.
func findCached(c *cache.Cache, prefix string) (*cache.Info, error) {
	list, err := c.List()
	if err != nil {
		return nil, err
	}
	var found *cache.Info
	for i := range list {
		if prefix == "" || !strings.HasPrefix(list[i].Name, prefix) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%q is the beginning of several names; give more of it", prefix)
		}
		found = &list[i]
	}
	if found == nil {
		return nil, cli.No(fmt.Errorf("no plan called %q in %s", prefix, c.Dir()))
	}
	return found, nil
}

func newCacheShow(open func() (*cache.Cache, error)) *cobra.Command {
	var problem bool
	var bytes string
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Print a cached plan or, with --problem, its problem; the beginning of the name is enough",
		Args:  cli.OneArgument,
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			in, err := findCached(c, args[0])
			if err != nil {
				return err
			}
			if in.Err != nil {
				return cli.No(in.Err)
			}
			s := in.Entry.Span.High
			if bytes != "" {
				if s, err = sizedAt(in.Entry, bytes); err != nil {
					return err
				}
			}
			text, err := plans.EncodePlan(s.Plan)
			if problem {
				text, err = plans.EncodeProblem(s.Problem)
			}
			if err != nil {
				return err
			}
			return cli.WriteOutput("out", "-", text)
		},
	}
	cmd.Flags().BoolVar(&problem, "problem", false, "print the problem")
	cmd.Flags().StringVar(&bytes, "bytes", "",
		"size of the call, such as 32MiB, among the sizes that the plan serves (default the largest)")
	return cmd
}

// sizedAt returns the plan of a cached span for a call of a size, with its digest.
func sizedAt(e *cache.Entry, text string) (sizes.Sized, error) {
	bytes, err := bench.ParseBytes(text)
	if err != nil {
		return sizes.Sized{}, fmt.Errorf("--bytes: %w", err)
	}
	block := int64(float64(bytes) / cli.BlocksOf(&e.Key))
	if block < e.Span.Min || block > e.Span.Max {
		return sizes.Sized{}, cli.No(fmt.Errorf("--bytes: %d are not among the %.0f..%.0f that the plan serves",
			bytes, cli.CallBytes(&e.Key, e.Span.Min), cli.CallBytes(&e.Key, e.Span.Max)))
	}
	s := sizes.Sized{Problem: e.Span.ProblemAt(block)}
	plan, err := e.Span.At(block, s.Problem)
	if err != nil {
		return s, err
	}
	sealed := *plan
	s.Plan = &sealed
	return s, plans.Seal(s.Problem, s.Plan)
}

func newCacheRemove(open func() (*cache.Cache, error)) *cobra.Command {
	var all, stale, asJSON bool
	var fabricPath string
	cmd := &cobra.Command{
		Use:   "rm NAME... | --stale | --all",
		Short: "Remove cached plans: named plans, plans that no job can find any more, or all",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && (all || stale) || len(args) == 0 && all == stale {
				return errors.New("name the plans to remove, or say --stale or --all")
			}
			reason, err := staleness(fabricPath)
			if err != nil {
				return err
			}
			c, err := open()
			if err != nil {
				return err
			}
			names, err := namedPlans(c, args)
			if err == nil && len(args) == 0 {
				names, err = chosenPlans(c, func(in *cache.Info) bool { return all || reason(in) != "" })
			}
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := c.Remove(name); err != nil {
					return err
				}
			}
			return cli.Show(asJSON, removed{names}, func() {})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the names of the removed plans as JSON")
	cmd.Flags().BoolVar(&all, "all", false, "remove every plan")
	cmd.Flags().BoolVar(&stale, "stale", false, "remove plans of other releases, and of earlier forms of the fabric")
	cli.FabricFlag(cmd, &fabricPath, fabricUsage)
	return cmd
}

// removed is what plan cache rm --json prints.
type removed struct {
	Removed []string `json:"removed"`
}

// namedPlans returns the full names of the plans whose names begin with prefixes, each once.
func namedPlans(c *cache.Cache, prefixes []string) ([]string, error) {
	names := []string{}
	for _, prefix := range prefixes {
		in, err := findCached(c, prefix)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, in.Name) {
			names = append(names, in.Name)
		}
	}
	return names, nil
}

// chosenPlans returns the names of the plans that want accepts.
func chosenPlans(c *cache.Cache, want func(*cache.Info) bool) ([]string, error) {
	list, err := c.List()
	names := []string{}
	for i := range list {
		if want(&list[i]) {
			names = append(names, list[i].Name)
		}
	}
	return names, err
}
