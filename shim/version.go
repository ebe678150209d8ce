package shim

import "lightpath/shim/bootstrap"

// Version is Lightpath's. Ranks of different versions refuse to form a communicator.
const Version = bootstrap.Version

// ABIVersion is the version of NCCL whose interface cgo/front has, for those who ask by NCCL's
// protocols.
const ABIVersion = "2.32.3"
