// Package msccl reads and writes collective algorithms in MSCCL's XML format. So algorithms of msccl-tools, SCCL and
// TACCL run through Lightpath, and those of Lightpath in their runtimes.
//
// A file holds, per GPU, thread blocks that run in parallel. A thread block is a sequence of steps that send to one
// peer, receive from one peer, copy or reduce. [Decode] reads a file, [File.Schedule] returns its schedule with a
// proof, and [Export] writes a schedule.
//
// The semantics of a file:
//   - The steps of a thread block run in order. A step with depid and deps begins when that step of another thread
//     block of the same GPU has ended.
//   - Messages of a connection (sender, receiver, channel) arrive in the order in which they were sent. A send does
//     not wait for its receive.
//   - A receiving step (r, rrc, rcs, rrs, rrcs) stores or reduces at dstbuf, dstoff; src is the location at the
//     sender. rrs sends the sum and does not store it.
//   - inplace="1" means that input and output overlap as in the collective's in-place call.
//
// The package imports schedule and plans. It reads algorithm files ([Build]). It must not move bytes or know
// transports.
package msccl
