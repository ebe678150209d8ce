// Package cli is shared by the rooms of commands: the tree of commands and its exit statuses, errors about usage,
// signals and time limits, files that flags and arguments name, flags of several commands, terminals.
//
// Layer: below the rooms of cmd/lightpath. It imports none of them, and does no work of a command.
package cli
