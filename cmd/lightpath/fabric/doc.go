// Package fabric has the command "fabric": it builds the planes of a fabric file in the kernel of this host, shows and
// removes them, and measures them.
//
// Layer: a room of commands, on cli. ocsctl/kernel does the work. Circuits are moved by controllers only, through
// "fabric agent" if there are several hosts.
package fabric
