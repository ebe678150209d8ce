package bootstrap

// Version is Lightpath's. Ranks of different versions refuse to form a communicator.
const Version = "0.1.0"
