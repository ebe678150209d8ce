package shim

import "lightpath/shim/bootstrap"

// Version is Lightpath's. Ranks of different versions refuse to form a communicator.
const Version = bootstrap.Version
