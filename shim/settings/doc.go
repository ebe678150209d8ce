// Package settings reads the environment, and no other package does. It has the table of the variables that Lightpath
// reads (Vars), with their documentation, their values (Config), and the reasons for not reading others. Tests compare
// docs/environment.md and the C front's table of parameters with it.
package settings
