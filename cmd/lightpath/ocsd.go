package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"lightpath/ocsctl/emulator"
	"lightpath/plans/fabric"
)

func newOCSDCommand() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "ocsd --config ocsd.yaml",
		Short: "Serve the optical switch of a fabric: the emulated OCS and its barrier",
		Long: `Serves the emulated optical circuit switch of a fabric file to the ranks on this host, until
it is interrupted. See "lightpath schema ocsd" for the configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if config == "" {
				return errors.New("--config is required")
			}
			o, f, err := fabric.LoadOCSD(config)
			if err != nil {
				return err
			}
			server, err := emulator.Start(emulatorConfig(o, f))
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "ocsd: %d ports, %d planes, on %s\n", f.Ranks, len(f.Planes), o.Socket)
			<-cmd.Context().Done()
			return server.Close()
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file")
	return cmd
}

func emulatorConfig(o *fabric.OCSD, f *fabric.Fabric) emulator.Config {
	c := emulator.Config{
		Socket: o.Socket, Ports: f.Ranks, Initial: o.Initial, MTU: o.MTU, Slots: o.Slots, FrameLog: o.FrameLog,
	}
	for j, p := range f.Planes {
		sw := f.Switch(j)
		c.Planes = append(c.Planes, emulator.PlaneConfig{
			Name: p.Name, BandwidthBitsPerSec: float64(p.Bandwidth), Reconfig: sw.Reconfig, ReconfigPerPort: sw.ReconfigPerPort,
		})
	}
	return c
}
