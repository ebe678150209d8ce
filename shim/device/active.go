package device

// active is the driver of the program's devices.
var active Driver

// Use sets the driver of the program's devices, before the first communicator is made. A nil driver stands for a
// program without devices. The driver must tell its handler of streams ([Handler]).
func Use(d Driver) { active = d }

// Active returns the driver that [Use] has set, nil for a program without devices.
func Active() Driver { return active }
