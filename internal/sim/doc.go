// Package sim answers "what would this cluster do" without a cluster: it runs the real division and the real engine on a
// cluster made of plain data, under a clock that jumps from one thing that happens to the next.
//
// It has three parts:
//
//   - [Divide] is KAI Scheduler's fair-share simulator: queues in, fair shares out. [Handler] serves it over HTTP.
//   - [Cluster] is a cluster that lives: nodes that fail and come back, gangs that arrive, run and end, pods that take their
//     time to go and are made again. One [Cluster.Decide] is one cycle of the scheduler.
//   - [Timeshare] is KAI's time-based fair-share simulator on a Cluster: a few queues compete for long, their past usage moves
//     their shares, and a [Series] records who had what and when.
//
// It refuses to know how a queue is divided or a gang placed: that is fairshare's and the engine's business, and what they
// decide here they decide on a real cluster. It reads no clock and no file, and one input gives one output.
package sim
