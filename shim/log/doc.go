// Package log writes the messages of a communicator in the form of NCCL's log. NCCL_DEBUG and the variables that begin
// so say which messages are written, where, and with which time. Package settings reads them.
package log
