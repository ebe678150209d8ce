package topology

import "github.com/spf13/cobra"

// New returns the command "topology".
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "topology",
		Aliases: []string{"cluster"},
		Short:   "Plan circuits for whole training jobs: between their pods, and in clusters",
		Long: `Plans circuits for whole jobs, before they run: the optical links between the pods of one training job
(delta), and the wiring and the circuits of a cluster's core of optical switches (lumos).
"lightpath topo" is another command: it shows the hardware of this machine.`,
	}
	cmd.AddCommand(newDelta(), newLumos())
	return cmd
}

// newLumos is LumosCore: pods of packet switches around a core of OCSes.
func newLumos() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lumos",
		Short: "Plan clusters with a core of optical circuit switches (LumosCore)",
		Long: `Plans clusters with a core of optical circuit switches (LumosCore). In order: wire lists the cables, plan makes
the links that jobs need, rewire changes them for other jobs. docs/jobs-lumos.md has an example.`,
	}
	cmd.AddCommand(newLumosSizes(), newLumosWire(), newLumosPlan(), newLumosRewire(), newLumosSimulate(),
		newLumosPlace())
	return cmd
}
