package device

// active is the driver of the program's devices, generation the number of drivers so far.
var (
	active     Driver
	generation uint64
)

// Use sets the driver of the program's devices, before the first communicator is made. A nil driver stands for a
// program without devices. The driver must tell its handler of streams ([Handler]).
func Use(d Driver) {
	active = d
	generation++
}

// Active returns the driver that [Use] has set, nil for a program without devices.
func Active() Driver { return active }

// Generation returns a number that each [Use] changes. Memory of an earlier driver must not be used again.
func Generation() uint64 { return generation }
