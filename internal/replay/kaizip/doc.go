// Package kaizip reads and writes KAI's snapshot archives: what its scheduler serves at /get-snapshot and its snapshot-tool
// replays.
//
// It answers "what case is in this archive" and "what archive tells of this cluster". An archive holds raw API objects, the
// scheduler's configuration and its flags. It holds no moment, no memory of the scheduler, no namespaces, disruption budgets
// or CSI nodes, and no history of usage: Read says so in notes, and takes the latest time that any object tells for the moment.
//
// Archives are others' files: what they unpack to is bounded, and bad objects are errors or notes.
package kaizip
