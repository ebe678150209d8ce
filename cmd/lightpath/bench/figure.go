package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lightpath/bench/figure"
	"lightpath/bench/planning"
	"lightpath/bench/workload"
	"lightpath/cmd/lightpath/cli"
)

// figures are all that the command can make.
var figures = slices.Concat(figure.Papers, planning.Reports)

// NewFigure returns the command "figure".
func NewFigure() *cobra.Command {
	var dir, demand string
	var list bool
	var o figure.Options
	cmd := &cobra.Command{
		Use:   "figure <paper> <figure>",
		Short: "Regenerate a paper's figure as CSV, SVG and PNG, the printed numbers beside ours",
		Long: "Regenerate a paper's figure as CSV, SVG and PNG, the printed numbers beside ours.\n" +
			"The paper \"lightpath\" are measurements of this machine, as a table.\n\n  " +
			strings.Join(figures.List(), "\n  "),
		Args: func(_ *cobra.Command, args []string) error {
			name := strings.Join(args, " ")
			switch {
			case list || slices.Contains(figures.Names(), name):
				return nil
			case len(args) != 2:
				return errors.New("want a paper and a figure, such as swot 7: lightpath figure --list shows all")
			}
			return fmt.Errorf("there is no figure %q: lightpath figure --list shows all", name)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if list {
				cli.Println(strings.Join(figures.List(), "\n"))
				return nil
			}
			if err := cli.AtLeast("--runs", o.Runs, 0); err != nil {
				return err
			}
			if demand != "" {
				if args[0] != planning.Paper || args[1] != "spectra" {
					return fmt.Errorf("--demand: %s %s takes no matrix, %s spectra does", args[0], args[1], planning.Paper)
				}
				text, err := cli.ReadInput("demand", demand)
				if err != nil {
					return err
				}
				if o.Demand, err = workload.Read(bytes.NewReader(text)); err != nil {
					return fmt.Errorf("--demand %s: %w", demand, err)
				}
			}
			o.Progress = cli.Progress(strings.Join(args, " "))
			return makeFigure(cmd.Context(), args[0], args[1], dir, o)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&dir, "out", "figures", "directory for the files")
	fl.BoolVar(&list, "list", false, "list the figures")
	fl.BoolVar(&o.Quick, "quick", false, "a coarse figure in seconds")
	fl.IntVar(&o.Runs, "runs", 0, "random matrices per point of a SPECTRA figure (0: its default)")
	fl.StringVar(&demand, "demand", "",
		"for lightpath spectra: a matrix as text, rows of numbers, instead of random matrices")
	fl.Int64Var(&o.Seed, "seed", 1, "seed of matrices and searches")
	return cmd
}

// makeFigure makes a figure or a report, writes its files, and prints the paper's numbers, its own, and the paths of
// the files.
func makeFigure(ctx context.Context, paper, name, dir string, o figure.Options) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if err := cli.CheckOutput("out", filepath.Join(dir, paper+"-"+name+".csv")); err != nil {
		return err
	}
	f, err := figures.Make(ctx, paper, name, o)
	if err != nil {
		return err
	}
	paths, err := f.Write(dir)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if paper == planning.Paper {
		cli.Print(f.Table.Text())
	}
	for _, c := range f.Claims {
		cli.Println(c)
	}
	for _, n := range f.Notes {
		cli.Println(n)
	}
	for _, p := range paths {
		cli.Println("wrote", p)
	}
	return nil
}
