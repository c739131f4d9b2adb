// Package vccron is the controller of Volcano's CronJobs: at each time of a schedule it makes a Job (batch.volcano.sh), keeps a number of those that ended, and
// says in the status which run.
//
//	CronJob, Job ──► book ──decide──► plan ──write──► Jobs to end, the Job that is due, status, Jobs of the past
//
// A Job is named by the minute that it was due and says the time in an annotation, so that a controller that dies after it made one makes no second:
// when a Job was last due is read off the Jobs besides the status.
package vccron
