// Package msccl reads and writes collective algorithms in MSCCL's XML format, so that those
// of msccl-tools, SCCL and TACCL run through Lightpath, and Lightpath's in their runtimes.
//
// A file holds, per GPU, thread blocks that run at the same time; each is a sequence of
// steps that send to one peer, receive from one peer, copy or reduce. [Decode] reads it,
// [File.Schedule] turns it into a proven schedule, [Export] writes a schedule.
//
// What a file means:
//   - The steps of a thread block run in order. A step with depid and deps begins when that
//     step of another thread block of the same GPU has ended.
//   - Messages of a connection (sender, receiver, channel) arrive in the order in which they
//     were sent; a send does not wait for its receive.
//   - A receiving step (r, rrc, rcs, rrs, rrcs) keeps or reduces at dstbuf, dstoff; src names
//     where the sender had it. rrs passes the sum on and keeps nothing.
//   - inplace="1" lays the input over the output as the collective's in-place call does.
//
// Layer: inside collectives, above schedule. It reads algorithm files ([Build]) and moves no
// bytes.
package msccl
