// Package cli has what rooms of commands share: the tree of commands and its exit statuses, errors about usage, signals
// and time limits, the files that flags and arguments name, flags of several commands, and terminals.
//
// Layer: below the rooms of cmd/lightpath. It imports none of them, and does no work of a command.
package cli
