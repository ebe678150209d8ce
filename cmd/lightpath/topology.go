package main

import "github.com/spf13/cobra"

// newTopologyCommand returns the commands of the jobs district: see docs/jobs.md.
func newTopologyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Plan circuits for whole training jobs: between their pods, and in clusters",
	}
	cmd.AddCommand(newTopologyDeltaCommand(), newTopologyLumosCommand())
	return cmd
}

// newTopologyLumosCommand is LumosCore: pods of packet switches around a core of OCSes.
func newTopologyLumosCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lumos",
		Short: "Plan clusters with a core of optical circuit switches (LumosCore)",
	}
	cmd.AddCommand(newLumosSizes(), newLumosWire(), newLumosPlan(), newLumosRewire(), newLumosSimulateCommand(),
		newLumosPlaceCommand())
	return cmd
}
