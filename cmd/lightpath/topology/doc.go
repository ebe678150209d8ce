// Package topology has the command "topology": it plans circuits between the pods of a training job (DELTA), and
// clusters with an optical core (LumosCore); see docs/jobs.md.
//
// Layer: a room of commands, on cli and jobflags. plans/delta and plans/lumos plan. It writes files for switches, and
// speaks to none.
package topology
