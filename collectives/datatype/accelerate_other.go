//go:build !amd64

package datatype

// levels returns nil: there is no assembly for this CPU.
func levels() []level { return nil }

func streamers() []streamer { return nil }
