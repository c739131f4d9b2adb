// Package replay is a decision as a file: everything that a run of the engine depended on, and the plans that came of it, so
// that the same decision can be made again anywhere.
//
// It answers "what would be decided on this, and is it what was decided then". It refuses files of another format, files that
// are larger than their reader allows, and clusters that cannot be; it has no client, and reads no clock.
//
//	cluster.Snapshot ──Image──► Case ──Write──► file ──Read──► Case ──Run──► the same plans, byte for byte
//
// Cycle after cycle, a Stream tells readers what differs from the one before, and a Follower puts each together again as the scheduler had it:
//
//	Decided ──► Stream ──keyframe, change, change, …──► Follower ──► Case of each cycle
//
// The scheduler keeps cases in a Recorder and serves them; the command line saves and replays them; package kaizip makes cases
// of KAI's own snapshots.
//
// The file is JSON packed by gzip: one object with the field "format" first. Amounts are named, lists are sorted, and
// what is equal for many pods (their class) is written once, so that equal snapshots make equal files. A reader refuses fields
// that it does not know: they would be a part of the decision that it cannot see.
//
// Weakness: a case holds objects of the cluster, names and labels of all pods included. It is as confidential as they are.
package replay
