package main

import "github.com/spf13/cobra"

// newTopologyCommand is the level above plans: the fabric within which they are made.
func newTopologyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Plan clusters: links between pods, wiring of switches, places of jobs",
	}
	cmd.AddCommand(newTopologyDeltaCommand(), newTopologyLumosCommand())
	return cmd
}

// newTopologyLumosCommand is LumosCore: pods of packet switches around a core of OCSes.
func newTopologyLumosCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lumos",
		Short: "Clusters whose core is made of optical circuit switches (LumosCore)",
	}
	cmd.AddCommand(newLumosSizes(), newLumosWire(), newLumosPlan(), newLumosRewire(), newLumosSimulateCommand(),
		newLumosPlaceCommand())
	return cmd
}
