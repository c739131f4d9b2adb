// Package trial is the command line of those who try the scheduler's decisions without a cluster: simulators with their plots, and the
// runner of behaviour cases. cmd/muster-lab adds its commands: what they need (a plotting library, the scenarios' runner) has no place in the
// program that runs in clusters.
package trial
