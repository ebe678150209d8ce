// Package memory has the memory that communicators know: allocations of ncclMemAlloc, registrations, page-locked
// memory, and pages that several processes map.
//
// Layer: above comm and device, below the paths. It knows no path: a path that uses registered memory says so by a
// function that the registration calls when it ends.
package memory
