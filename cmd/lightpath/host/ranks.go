package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/files"
	"lightpath/shim/flight"
	"lightpath/shim/report"
	"lightpath/shim/settings"
	"lightpath/shim/status"
)

// ranksOptions are the flags of `lightpath ranks`.
type ranksOptions struct {
	json, watch, verbose bool
	address, dump        string
	metrics              string
	timeout              time.Duration
}

// NewRanks returns the command "ranks".
func NewRanks() *cobra.Command {
	var o ranksOptions
	cmd := &cobra.Command{
		Use:   "ranks",
		Short: "Say what the ranks of this host's jobs are doing, and whom everyone waits for",
		Long: `Asks every process of this user on this host that has a communicator, and through them the
ranks on other hosts. Prints a line per communicator that names the rank for which the others wait. It
lists the ranks if something is wrong, or with --verbose. Exit status 1: a communicator has failed or
waits.

With --address it asks a process that serves NCCL's RAS protocol (NCCL_RAS_ADDR) there.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Positive("--timeout", o.timeout); err != nil {
				return err
			}
			if o.address != "" {
				err := status.AskRAS(o.address, o.timeout, o.verbose, o.json, cli.Stdout)
				if errors.Is(err, syscall.ECONNREFUSED) {
					err = fmt.Errorf("no process with a communicator listens there (NCCL_RAS_ADDR): %w", err)
				}
				if err != nil {
					err = fmt.Errorf("--address: %w", err)
				}
				return err
			}
			cfg, err := settings.Load()
			if err != nil {
				return err
			}
			dir := report.StatusDir(cfg)
			switch {
			case o.dump != "":
				return o.dumpAll(dir)
			case o.watch:
				return o.watchRanks(cmd.Context(), dir)
			}
			return o.printRanks(dir)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.BoolVar(&o.watch, "watch", false, "print anew every second; with --metrics: write the file anew")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print every rank of every communicator")
	f.StringVar(&o.address, "address", "", "host:port of a RAS service to ask instead")
	f.StringVar(&o.dump, "dump", "", "write the flight recorders of this host's ranks into a directory instead")
	f.StringVar(&o.metrics, "metrics", "",
		"write metrics of Prometheus to this file instead, for the textfile collector of node_exporter")
	f.DurationVar(&o.timeout, "timeout", status.DefaultTimeout, "how long ranks get to answer")
	for _, other := range []string{"json", "address", "dump"} {
		cmd.MarkFlagsMutuallyExclusive("metrics", other)
		cmd.MarkFlagsMutuallyExclusive("watch", other)
	}
	cmd.AddCommand(newRanksMerge())
	return cmd
}

// printRanks asks once.
func (o *ranksOptions) printRanks(dir string) error {
	r, err := status.Collect(dir, o.timeout)
	if err != nil {
		return err
	}
	if o.metrics != "" {
		return o.writeMetrics(r)
	}
	if o.json {
		err = cli.PrintJSON(r)
	} else {
		r.Write(cli.Stdout, o.verbose)
	}
	if worst := r.Worst(); err == nil && (worst == status.Failed || worst == status.Waiting) {
		err = cli.No(errors.New("a communicator is " + worst))
	}
	return err
}

// watchRanks asks every second until it is interrupted.
func (o *ranksOptions) watchRanks(ctx context.Context, dir string) error {
	const clear = "\x1b[H\x1b[2J"
	for {
		r, err := status.Collect(dir, o.timeout)
		switch {
		case err != nil:
		case o.metrics != "":
			err = o.writeMetrics(r)
		default:
			var out bytes.Buffer
			fmt.Fprintln(&out, r.Time.Format(time.DateTime))
			r.Write(&out, o.verbose)
			if cli.IsTerminal(os.Stdout) {
				cli.Print(clear)
			}
			_, err = out.WriteTo(cli.Stdout)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// writeMetrics replaces the file of metrics.
func (o *ranksOptions) writeMetrics(r *status.Report) error {
	return files.Write(o.metrics, status.Metrics(r.Comms), 0o644)
}

// dumpAll writes the flight recorders of this host's ranks.
func (o *ranksOptions) dumpAll(dir string) error {
	texts, err := status.Dumps(dir, o.timeout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lightpath:", err) // the others are worth having
	}
	if err := os.MkdirAll(o.dump, 0o700); err != nil {
		return fmt.Errorf("--dump: %w", err)
	}
	for _, text := range texts {
		d, err := flight.Decode(text)
		if err != nil {
			return err
		}
		path := filepath.Join(o.dump, d.FileName())
		if err := files.Write(path, append(text, '\n'), 0o600); err != nil {
			return fmt.Errorf("--dump: %w", err)
		}
		cli.Println(path)
	}
	if len(texts) == 0 {
		return cli.No(errors.New("no communicators on this host"))
	}
	return nil
}

func newRanksMerge() *cobra.Command {
	var trace string
	var asJSON, table bool
	cmd := &cobra.Command{
		Use:   "merge FILE...",
		Short: "Compare the flight recorders of ranks: where they diverge, who is missing",
		Long: `Reads flight recorders (LIGHTPATH_FLIGHT_RECORDER_DIR, lightpath ranks --dump) of any ranks and
communicators, and says per communicator at which operation ranks differ first, and whose recorder
is missing. --trace writes all of them as one trace for https://ui.perfetto.dev or chrome://tracing.
Exit status 1: ranks differ.`,
		Args: cli.Arguments,
		RunE: func(_ *cobra.Command, args []string) error {
			var dumps []*flight.Dump
			for _, path := range args {
				d, err := cli.DecodeArgument(path, flight.Decode)
				if err != nil {
					return err
				}
				dumps = append(dumps, d)
			}
			if trace != "" {
				if err := cli.WriteJSON("trace", trace, flight.Trace(dumps)); err != nil {
					return err
				}
			}
			found := flight.Compare(dumps)
			if err := cli.Show(asJSON, found, func() { flight.Write(cli.Stdout, dumps, found, table) }); err != nil {
				return err
			}
			for i := range found {
				if found[i].Differs() {
					return cli.No(errors.New("ranks differ"))
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&trace, "trace", "", "file for the trace, - is standard output")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&table, "table", false, "print every operation")
	return cmd
}
