//go:build !amd64

package datatype

// levels: no vector instructions are used here.
func levels() []level { return nil }

func streamers() []streamer { return nil }
