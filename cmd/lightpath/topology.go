package main

import "github.com/spf13/cobra"

// newTopologyCommand is the level above plans: the fabric within which they are made.
func newTopologyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "topology",
		Aliases: []string{"cluster"},
		Short:   "Plan clusters: links between pods, wiring of switches, places of jobs",
		Long: `Plans a whole cluster, before any job runs: the optical links between pods that a training job needs
(delta), and the wiring and the circuits of a core of optical switches (lumos).
"lightpath topo" is another command: it shows the hardware of this machine.`,
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
	cmd.AddCommand(newLumosSizes(), newLumosWire(), newLumosPlan(), newLumosRewire(), newLumosSimulateCommand(), newLumosPlaceCommand())
	return cmd
}
