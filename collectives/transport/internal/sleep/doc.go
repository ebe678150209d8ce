// Package sleep lets the endpoints of the transports over shared memory wait on a doorbell, and closes the doorbell
// safely while goroutines wait on it.
//
// It imports internal/shmring and nothing else of Lightpath. It knows neither rings nor frames.
package sleep
