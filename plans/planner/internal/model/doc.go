// Package model compiles a problem for planning: its steps, the units of planes that switch together, and the pages. A
// page is a setting of a unit that serves a step directly. A step whose flows one plane cannot hold at a time is
// divided into sub-steps. All planners read the same [Model] and do not change it.
//
// Layer: the lowest room of plans/planner. It must not time, choose or write plans.
package model
