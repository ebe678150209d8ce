// Package cache keeps plans in a directory of content-addressed files, with a map in
// memory before it.
//
// Layer: inside plans; with the codec it is the only part of plans that touches files. It
// neither plans nor decides when to: a miss is an answer.
//
// A cached file is a plan file with two more fields, "key" and "problem", so every command
// that reads plans reads it. It is named after the hash of its key. A file is used only if
// it decodes, its key is the one asked for, its digest is right and its plan is feasible;
// otherwise it is refused with the reason, and stays where it is for a person to look at
// until the next Put replaces it.
package cache
