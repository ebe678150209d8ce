// Package ocs has the commands of operators and schedulers: "ocs" shows and sets planes, through their controller or on
// the switches themselves; "jobs" begins and ends jobs.
//
// Layer: a room of commands, on cli. It is a client of controllers and switches, and serves nothing.
package ocs
