package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"lightpath/bench/figure"
)

func newFigureCommand() *cobra.Command {
	var dir string
	var o figure.Options
	cmd := &cobra.Command{
		Use:   "figure <paper> <figure>",
		Short: "Regenerate a paper's figure: CSV, SVG and PNG, the printed numbers beside ours",
		Long:  "Regenerate a paper's figure: CSV, SVG and PNG, the printed numbers beside ours.\n\n  " + strings.Join(figure.List(), "\n  "),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("figure: want a paper and a figure:\n  %s", strings.Join(figure.List(), "\n  "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Runs < 0 {
				return fmt.Errorf("--runs: %d is negative", o.Runs)
			}
			o.Progress = progress(strings.Join(args, " "))
			f, err := figure.Make(cmd.Context(), args[0], args[1], o)
			if err != nil {
				return err
			}
			paths, err := f.Write(dir)
			if err != nil {
				return err
			}
			for _, c := range f.Claims {
				fmt.Println(c)
			}
			for _, n := range f.Notes {
				fmt.Println(n)
			}
			for _, p := range paths {
				fmt.Println("wrote", p)
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&dir, "out", "figures", "directory for the files")
	fl.BoolVar(&o.Quick, "quick", false, "a coarse figure in seconds")
	fl.IntVar(&o.Runs, "runs", 0, "random matrices per point of a SPECTRA figure (0: its default)")
	fl.Int64Var(&o.Seed, "seed", 1, "seed of matrices and searches")
	return cmd
}

// progress returns a counter that overwrites one line of a terminal; nil where standard
// error is none.
func progress(what string) func(done, total int) {
	if !isTerminal(os.Stderr) {
		return nil
	}
	return func(done, total int) {
		fmt.Fprintf(os.Stderr, "\r%s: %d of %d", what, done, total)
		if done == total {
			fmt.Fprintln(os.Stderr)
		}
	}
}
