// Package planning has the commands about plans of collectives and their schedules: "plan", "sim" and "schedule".
//
// Layer: a room of commands, on cli. plans and collectives do the work. Whole jobs are for the rooms topology and
// iteration.
package planning
