package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"lightpath/plans"
	"lightpath/plans/cache"
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

func newPlanCache() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Make, list, show and remove cached plans",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "cache directory (default LIGHTPATH_PLAN_DIR, else the user's cache)")
	open := func() (*cache.Cache, error) {
		path, err := cacheDir(dir)
		if err != nil {
			return nil, err
		}
		return cache.Open(path)
	}
	cmd.AddCommand(newCacheList(open), newCacheShow(open), newCacheRemove(open), newCacheWarm(open))
	return cmd
}

// cacheRow is one line of `plan cache ls --json`.
type cacheRow struct {
	Name        string    `json:"name"`
	Key         cache.Key `json:"key"`
	CCTUS       float64   `json:"cct_us"`
	LowerBound  float64   `json:"lower_bound_us"`
	Error       string    `json:"error,omitempty"`
	SizeOfFile  int64     `json:"file_bytes,omitempty"`
	PlanPlanner string    `json:"planner"`
}

func rowOf(e *cache.Entry) cacheRow {
	return cacheRow{Name: e.Key.Name(), Key: e.Key, CCTUS: e.Plan.CCTUS, LowerBound: e.Plan.LowerBoundUS, PlanPlanner: e.Plan.Planner}
}

func newCacheList(open func() (*cache.Cache, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List plans; unusable files are named and exit 1",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
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
			for i, in := range list {
				if in.Err != nil {
					rows[i] = cacheRow{Name: in.Name, Error: in.Err.Error()}
					bad = errors.Join(bad, in.Err)
				} else {
					rows[i] = rowOf(in.Entry)
				}
				rows[i].SizeOfFile = in.Bytes
			}
			if asJSON {
				if err := writeJSON("-", rows); err != nil {
					return err
				}
			} else {
				printCache(rows)
			}
			if bad != nil {
				return no(bad)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printCache(rows []cacheRow) {
	fmt.Printf("%-16s %-13s %-20s %5s %24s %-9s %14s %14s\n", "name", "collective", "algorithm", "ranks", "bytes", "planner", "CCT (us)", "bound (us)")
	for _, r := range rows {
		if r.Error != "" {
			fmt.Printf("%-16.16s unusable: %s\n", r.Name, r.Error)
			continue
		}
		k := r.Key
		fmt.Printf("%-16.16s %-13s %-20s %5d %24s %-9s %14.6g %14.6g\n", r.Name, k.Collective, k.Algorithm, k.Ranks,
			fmt.Sprintf("%d..%d", k.MinBytes, k.MaxBytes), r.PlanPlanner, r.CCTUS, r.LowerBound)
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
		if len(prefix) == 0 || len(list[i].Name) < len(prefix) || list[i].Name[:len(prefix)] != prefix {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%q is the beginning of several names; give more of it", prefix)
		}
		found = &list[i]
	}
	if found == nil {
		return nil, no(fmt.Errorf("no plan called %q in %s", prefix, c.Dir()))
	}
	return found, nil
}

func newCacheShow(open func() (*cache.Cache, error)) *cobra.Command {
	var problem bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Print a cached plan (or --problem, the problem it answers); a beginning of the name is enough",
		Args:  cobra.ExactArgs(1),
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
				return no(in.Err)
			}
			text, err := plans.EncodePlan(in.Entry.Plan)
			if problem {
				text, err = plans.EncodeProblem(in.Entry.Problem)
			}
			if err != nil {
				return err
			}
			return writeOutput("out", "-", text)
		},
	}
	cmd.Flags().BoolVar(&problem, "problem", false, "print the problem")
	return cmd
}

func newCacheRemove(open func() (*cache.Cache, error)) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "rm NAME... | --all",
		Short: "Remove cached plans",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			if all == (len(args) > 0) {
				return errors.New("name the plans to remove, or say --all")
			}
			if all {
				list, err := c.List()
				if err != nil {
					return err
				}
				for _, in := range list {
					args = append(args, in.Name)
				}
			}
			for _, name := range args {
				in, err := findCached(c, name)
				if err != nil {
					return err
				}
				if err := c.Remove(in.Name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove every plan")
	return cmd
}
