// Package climb searches for the slowest scheduling cycle: it changes a cluster a little, keeps the change if the slowest of a few cycles has
// become slower, begins again elsewhere when nothing gets slower any more, and makes what it found as small as it can be without getting faster.
// A cluster is a [genome.Genome]. What is slow is what takes processor time, as the machine may be busy with other things.
//
// Where cycles are run is a program of its own, a Runner: muster-lab itself, or that of another tree of Muster, which is given the same
// genomes (testdata/93118e2 is one). One that does not come back is killed.
//
// What was found is kept as text in testdata/cases; `make bench` runs it, and a test checks that each still lays the same cluster. No program
// that runs in clusters has anything of this.
package climb
