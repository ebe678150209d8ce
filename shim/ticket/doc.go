// Package ticket has the values of the circuits protocol and their encoding: tickets, rows of grouped sends and
// receives, and plans of rounds.
//
// Layer: above planning, below circuits and arbiter. It never blocks and keeps no state.
package ticket
