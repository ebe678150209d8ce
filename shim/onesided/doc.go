// Package onesided runs put, signal and wait. It keeps links to other ranks, and the windows that other ranks write
// to.
package onesided
