package shim

import "fmt"

// NewUniqueID makes an id.
func NewUniqueID() (UniqueID, error) { return UniqueID{}, ErrInternal }

// Init makes communicators.
func Init(args []InitArgs) ([]*Comm, error) { return nil, fmt.Errorf("shim: init: %w", ErrInternal) }

// Check checks a call.
func Check(c *Call) error { return ErrInternal }

// Run runs calls as one group.
func Run(calls []Call) error { return ErrInternal }

// Finalize ends a communicator.
func (c *Comm) Finalize() error { return ErrInternal }

// Destroy frees a communicator.
func (c *Comm) Destroy() error { return ErrInternal }

// Abort unblocks and frees a communicator.
func (c *Comm) Abort() error { return ErrInternal }

// AsyncError is what poisoned the communicator, nil while it is healthy.
func (c *Comm) AsyncError() error { return nil }
