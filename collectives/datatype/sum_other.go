//go:build !amd64

package datatype

func accelerate(*Kernels) {}
