// Package suspend keeps machines that were suspended on their claims: directories that outlive the pod, and that other pods of the namespace may write to.
//
// A scenario. The machine of pod trainer-0 is saved: its memory, its root's overlay and its first-boot data are three files of the node. Put copies them below the claim, to
// .muster-vm/JOB@0@CONTAINER/saved, with a list of their sizes and sums that is sealed. The pod is gone. Its Job makes another trainer-0, on another node: Find reads the list, Fetch copies the files to where the
// new machine has its own, and refuses one byte that was not saved so. Right before the machine's CPUs run, Take says that this machine has it; a second pod that had fetched the same is told
// that it came too late. Once they run, Drop removes what nobody may begin from again: the disk has gone on.
//
// What lies on a claim is hostile: the seal says that a muster-vm with the same key wrote it. It does not hide anything: who reads the claim reads the machine's memory.
//
// On a claim there are the states of one owner at a time. Those of another are removed when a pod comes whose owner it is: their owner is gone, or has no business there.
package suspend
